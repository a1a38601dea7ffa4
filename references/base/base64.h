// Lists of numbers inside JSON as text: base64 (RFC 4648) of little-endian fp32 values.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

namespace mkbench {

// The values; nullopt if the text is not base64 with padding, or ends inside a value.
std::optional<std::vector<float>> floats_from_base64(std::string_view text);

}  // namespace mkbench
