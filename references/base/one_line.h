// Makes text from elsewhere safe for messages and reports.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace mkbench {

// Bytes of the control character that begins at byte `at`: 1 for U+0000 to U+001F and U+007F, 2 for
// U+0080 to U+009F, which some terminals obey too, and 0 where there is none.
size_t control_bytes(std::string_view text, size_t at);

// `text` as one line: control characters become escapes, long text is cut after max_length
// characters.
std::string one_line(const std::string& text, size_t max_length = 200);

}  // namespace mkbench
