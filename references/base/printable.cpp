#include "references/base/printable.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <iterator>

namespace mkbench {
namespace {

// Code points that are not shown: controls, invisible marks, those that change the direction of
// writing, separators of lines, private use, noncharacters. First and last of each range.
constexpr uint32_t kNotShown[][2] = {
    {0x00, 0x1f},     {0x7f, 0x9f},     {0xad, 0xad},     {0x61c, 0x61c},     {0x180e, 0x180e},
    {0x200b, 0x200f}, {0x2028, 0x202e}, {0x2060, 0x206f}, {0xe000, 0xf8ff},   {0xfdd0, 0xfdef},
    {0xfeff, 0xfeff}, {0xfff0, 0xfffb}, {0xfffe, 0xffff}, {0xe0000, 0x10ffff}};

bool is_hidden(uint32_t code) {
  return (code & 0xfffe) == 0xfffe ||
         std::any_of(std::begin(kNotShown), std::end(kNotShown),
                     [code](const auto& r) { return code >= r[0] && code <= r[1]; });
}

void append_utf8(uint32_t code, std::string& out) {
  const auto add = [&out](uint32_t byte) { out += static_cast<char>(byte); };
  if (code < 0x800) {
    add(0xc0 | code >> 6);
  } else if (code < 0x10000) {
    add(0xe0 | code >> 12);
    add(0x80 | (code >> 6 & 0x3f));
  } else {
    add(0xf0 | code >> 18);
    add(0x80 | (code >> 12 & 0x3f));
    add(0x80 | (code >> 6 & 0x3f));
  }
  add(0x80 | (code & 0x3f));
}

// The value of 1 to 6 lower-case hexadecimal digits; nullopt for any other text.
std::optional<uint32_t> hex_number(std::string_view text) {
  if (text.empty() || text.size() > 6) return std::nullopt;
  if (text.find_first_not_of("0123456789abcdef") != text.npos) return std::nullopt;
  uint32_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number, 16);
  return number;
}

// Appends what the escape at the start of `text` stands for; returns its length, 0 for none.
size_t take_escape(std::string_view text, std::string& out) {
  if (text.size() < 2) return 0;
  constexpr std::string_view kNames = "ntr\\", kMeant = "\n\t\r\\";
  if (const size_t at = kNames.find(text[1]); at != std::string_view::npos) {
    out += kMeant[at];
    return 2;
  }
  if (text[1] == 'x' && text.size() >= 4) {
    const auto byte = hex_number(text.substr(2, 2));
    if (byte) out += static_cast<char>(*byte);
    return byte ? 4 : 0;
  }
  const size_t end = text.find('}');
  if (text.substr(1, 2) != "u{" || end == std::string_view::npos) return 0;
  const auto code = hex_number(text.substr(3, end - 3));
  if (!code || *code < 0x80 || *code > 0x10ffff) return 0;
  append_utf8(*code, out);
  return end + 1;
}

}  // namespace

Character first_character(std::string_view text) {
  const auto first = static_cast<unsigned char>(text[0]);
  if (first < 0x80) return {1, first};
  const size_t size = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < size) return {};
  uint32_t code = first & (0xffU >> (size + 1));
  for (size_t i = 1; i < size; ++i) {
    const auto next = static_cast<unsigned char>(text[i]);
    if ((next & 0xc0) != 0x80) return {};
    code = code << 6 | (next & 0x3fU);
  }
  constexpr uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = code >= 0xd800 && code <= 0xdfff;
  return code < kLeast[size] || code > 0x10ffff || surrogate ? Character{} : Character{size, code};
}

std::string printable(std::string_view bytes) {
  std::string out;
  while (!bytes.empty()) {
    const Character c = first_character(bytes);
    const size_t size = std::max<size_t>(c.size, 1);
    if (c.size == 0) {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(bytes[0]));
    } else if (c.code == '\\') {
      out += "\\\\";
    } else if (c.code == '\n' || c.code == '\t' || c.code == '\r') {
      out += c.code == '\n' ? "\\n" : c.code == '\t' ? "\\t" : "\\r";
    } else if (c.code < 0x80 && is_hidden(c.code)) {
      out += fmt::format("\\x{:02x}", c.code);
    } else if (is_hidden(c.code)) {
      out += fmt::format("\\u{{{:x}}}", c.code);
    } else {
      out += bytes.substr(0, size);
    }
    bytes.remove_prefix(size);
  }
  return out;
}

std::optional<std::string> bytes_of_printable(std::string_view text) {
  std::string bytes;
  for (std::string_view left = text; !left.empty();) {
    if (left[0] != '\\') {
      bytes += left[0];
      left.remove_prefix(1);
      continue;
    }
    const size_t size = take_escape(left, bytes);
    if (size == 0) return std::nullopt;
    left.remove_prefix(size);
  }
  if (printable(bytes) != text) return std::nullopt;
  return bytes;
}

}  // namespace mkbench
