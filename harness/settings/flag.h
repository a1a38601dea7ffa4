// A flag of a command: its words, and how a given text becomes a field of the settings S. The flags
// of a command stand beside the struct that they fill.
#pragma once

#include <cctype>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "harness/settings/values.h"

namespace mkbench {

// A flag's words, for the parser, --help and the environment.
struct FlagWords {
  std::string_view name;          // without dashes
  char letter = 0;                // 0 = none
  std::string_view value;         // what --help calls its value; empty for a switch
  std::string_view default_text;  // parsed like a given value; empty = none
  std::string_view help;
  bool hidden = false;  // works, but --help does not show it: for tests

  // `spec`: the name with its letter, value and default, such as "n-gen,n L=128", "resume DIR" or
  // "plot=on". `spec` and `sentence` (the help) must be literals: only views of them are kept.
  FlagWords(std::string_view spec, std::string_view sentence) : help(sentence) {
    const std::string_view left = spec.substr(0, spec.find('='));
    if (left.size() < spec.size()) default_text = spec.substr(left.size() + 1);
    const std::string_view word = left.substr(0, left.find(' '));
    if (word.size() < left.size()) value = left.substr(word.size() + 1);
    name = word.substr(0, word.find(','));
    if (name.size() < word.size()) letter = word.back();
  }

  bool is_switch() const { return value.empty(); }
  // True for a flag that may be repeated; its values are joined by commas.
  bool is_list() const { return value == "LIST" || value == "L"; }
  // The environment variable: MKBENCH_ and the name in upper case.
  std::string env() const {
    std::string variable = "MKBENCH_";
    for (const char c : name) {
      variable += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    }
    return variable;
  }
};

template <typename S>
struct Flag : FlagWords {
  std::function<void(S&, const std::string& text)> set;

  Flag(const FlagWords& words, std::function<void(S&, const std::string&)> how)
      : FlagWords(words), set(std::move(how)) {}
  // Converts a flag of a base of S, so that flags of both can be in one list.
  template <typename Base>
  Flag(const Flag<Base>& flag)  // NOLINT(google-explicit-constructor)
      : FlagWords(flag), set(flag.set) {}
};

// A flag that sets `field` to `read(name, text)` (readers: values.h). `spec`: as for FlagWords.
template <typename S, typename T, typename Read>
Flag<S> flag(std::string_view spec, std::string_view help, T S::*field, Read read) {
  const FlagWords words(spec, help);
  return {words,
          [=, name = words.name](S& s, const std::string& text) { s.*field = read(name, text); }};
}
// A flag that sets `field` to the text itself.
template <typename S>
Flag<S> flag(std::string_view spec, std::string_view help, std::string S::*field) {
  return flag(spec, help, field, [](std::string_view, const std::string& text) { return text; });
}
// A switch, on or off.
template <typename S>
Flag<S> flag(std::string_view spec, std::string_view help, bool S::*field) {
  return flag(spec, help, field, parse_switch);
}
template <typename S>
Flag<S> hidden(Flag<S> flag) {
  flag.hidden = true;
  return flag;
}

// The flags of several lists, as flags of S.
template <typename S, typename... Lists>
std::vector<Flag<S>> flags_of(const Lists&... lists) {
  std::vector<Flag<S>> all;
  (all.insert(all.end(), lists.begin(), lists.end()), ...);
  return all;
}

}  // namespace mkbench
