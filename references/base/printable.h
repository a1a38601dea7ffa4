// Bytes of unknown text, made safe to show.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace mkbench {

// The first character of a text; size, in bytes, is 0 where the text begins with none of UTF-8.
struct Character {
  size_t size = 0;
  uint32_t code = 0;
};
Character first_character(std::string_view text);

// `bytes` as one line of valid UTF-8 that neither moves a cursor nor changes the direction of
// writing: a backslash is doubled, bytes that are no whole character and control characters become
// escapes like \n or \x1b, and other invisible or unassigned characters escapes like \u{202e}.
std::string printable(std::string_view bytes);

// The bytes for which printable() returns `text`; nullopt if there are none.
std::optional<std::string> bytes_of_printable(std::string_view text);

}  // namespace mkbench
