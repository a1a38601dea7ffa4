#include "references/base/one_line.h"

#include <fmt/format.h>

namespace mkbench {

size_t control_bytes(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  if (byte(at) < 0x20 || byte(at) == 0x7f) return 1;
  const bool second = byte(at) == 0xc2 && at + 1 < text.size();
  return second && byte(at + 1) >= 0x80 && byte(at + 1) < 0xa0 ? 2 : 0;
}

std::string one_line(const std::string& text, size_t max_length) {
  std::string out;
  size_t length = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    const size_t control = control_bytes(text, i);
    const bool starts = (c & 0xc0) != 0x80;  // `c` begins a code point
    if (starts && ++length > max_length) return out + "...";
    if (c == '\n') {
      out += "\\n";
    } else if (control > 0) {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(text[i += control - 1]));
    } else {
      out += text[i];
    }
  }
  return out;
}

}  // namespace mkbench
