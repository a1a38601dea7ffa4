#include "references/base/one_line.h"

#include <fmt/format.h>

namespace mkbench {

std::string one_line(const std::string& text, size_t max_length) {
  std::string out;
  size_t length = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    const bool starts = (c & 0xc0) != 0x80;  // of a code point
    if (starts && ++length > max_length) return out + "...";
    if (c == '\n') {
      out += "\\n";
    } else if (c < 0x20 || c == 0x7f) {
      out += fmt::format("\\x{:02x}", c);
    } else {
      out += text[i];
    }
  }
  return out;
}

}  // namespace mkbench
