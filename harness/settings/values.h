// Values of flags as text: numbers, choices and lists, with refusals that name the flag.
#pragma once

#include <fmt/format.h>

#include <charconv>
#include <cstdint>
#include <limits>
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
// Comma-separated words, of which some may be paths with commas: a word reaches as far as a file or
// folder of that name is there, else to the next comma.
std::vector<std::string> parse_path_list(std::string_view flag, const std::string& text);

// "off" (0), or a number in (0, 1].
double parse_relative(std::string_view flag, const std::string& text);
double parse_seconds(std::string_view flag, const std::string& text);
// A name that a folder can have.
std::string parse_name(std::string_view flag, const std::string& text);
// A seed of random generators.
uint64_t parse_seed(std::string_view flag, const std::string& text);

// Readers for flag() (flag.h): a whole number, or a list of them, each of at least `least`.
template <typename T>
auto at_least(T least) {
  return [=](std::string_view flag, std::string_view text) {
    return parse_number<T>(flag, text, least, std::numeric_limits<T>::max(),
                           fmt::format("a whole number of at least {}", least));
  };
}
inline auto list_from(int least) {
  return [=](std::string_view flag, const std::string& text) {
    return parse_int_list(flag, text, least);
  };
}
// A reader for the value that a text names among `choices`.
template <typename T>
auto one_of(std::vector<std::pair<std::string, T>> choices) {
  return [=](std::string_view flag, const std::string& text) {
    return parse_choice<T>(flag, text, choices);
  };
}
// A reader that accepts only these words.
inline auto one_word_of(const std::vector<std::string>& words) {
  std::vector<std::pair<std::string, std::string>> choices;
  for (const std::string& word : words) choices.emplace_back(word, word);
  return one_of(std::move(choices));
}

// The candidate nearest to `word` by edit distance; empty if none is near.
std::string nearest_word(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace mkbench
