// What a shell may offer on a command line of mkbench, read off the tables of flags and commands.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "harness/parent/options.h"

namespace mkbench {

// What may stand as a flag's value or as an argument.
struct ShellValue {
  std::vector<std::string> words;
  bool files = false;  // a path, too
  bool list = false;   // several words, joined by commas
};

// What may stand as the value of `flag`, which takes one.
ShellValue value_of(const Flag& flag);
// What may stand as a positional argument of `command`.
ShellValue arguments_of(const CommandRow& command);

// The flags that --help shows for `command`; without one, all that it shows for some command.
std::vector<const Flag*> shown_flags(const CommandRow* command = nullptr);
// The commands whose --help shows `flag`.
std::vector<std::string_view> commands_of(const Flag& flag);
// "--plot", "--no-plot"; a letter stands first: "-n", "--n-gen".
std::vector<std::string> spellings_of(const Flag& flag);

// The flags that every command has and that are in no table.
struct CommonFlag {
  std::string_view name;
  char letter;
  std::string_view help;
};
inline constexpr CommonFlag kCommonFlags[] = {
    {"help", 'h', "what the command takes"},
    {"version", 0, "version and commit of this mkbench"},
};

// `text` with each `from` replaced by `to`.
std::string with_replaced(std::string text, std::string_view from, std::string_view to);

}  // namespace mkbench
