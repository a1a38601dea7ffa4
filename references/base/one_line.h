// Text from elsewhere, for messages and reports.
#pragma once

#include <string>

namespace mkbench {

// `text` as one line: control characters become escapes, long text is cut after max_length
// characters.
std::string one_line(const std::string& text, size_t max_length = 200);

}  // namespace mkbench
