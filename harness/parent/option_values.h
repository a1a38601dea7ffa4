// Values of flags as text: numbers, choices and lists, with refusals that name the flag.
#pragma once

#include <fmt/format.h>

#include <charconv>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace mkbench {

// Throws Error(kBadInput).
[[noreturn]] void bad_usage(const std::string& message);

// All of `text` as a number in [low, high]; `wanted` describes the number in the refusal.
template <typename T>
T parse_number(std::string_view flag, std::string_view text, T low, T high,
               std::string_view wanted) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  if (!whole || !(value >= low && value <= high)) {
    bad_usage(fmt::format("--{}: '{}' is not {}", flag, text, wanted));
  }
  return value;
}

// A whole number of at least `minimum`.
int parse_int(std::string_view flag, std::string_view text, int minimum);

// true/1/on/yes or false/0/off/no.
bool parse_switch(std::string_view flag, const std::string& text);

// The value that `text` names among `choices`.
template <typename T>
T parse_choice(std::string_view flag, const std::string& text,
               const std::vector<std::pair<std::string, T>>& choices) {
  std::string names;
  for (const auto& [name, value] : choices) {
    if (name == text) return value;
    names += (names.empty() ? "" : ", ") + name;
  }
  bad_usage(fmt::format("--{}: '{}' is not one of {}", flag, text, names));
}

// "16,32", "0-4096*2" (0, 1, 2, 4, ... 4096), "128-1024+128". Duplicates are kept once, in order.
std::vector<int> parse_int_list(std::string_view flag, const std::string& text, int minimum);

// Comma-separated words, none empty.
std::vector<std::string> parse_word_list(std::string_view flag, const std::string& text);

// The candidate nearest to `word` by edit distance; empty when none is near.
std::string nearest_word(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace mkbench
