// What a person reads while a command works.
#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <string>
#include <utility>

namespace mkbench {

// Prints on standard error. Unlike fmt::print() it does not throw where nothing can be printed (a
// full disk, a closed pipe): results that come later must still be written.
template <typename... Values>
void print_stderr(fmt::format_string<Values...> format, Values&&... values) {
  const std::string text = fmt::format(format, std::forward<Values>(values)...);
  std::fwrite(text.data(), 1, text.size(), stderr);
}

}  // namespace mkbench
