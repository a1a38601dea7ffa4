#include "harness/parent/completions.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "harness/device/program_output.h"
#include "harness/parent/shell_words.h"

namespace mkbench {
namespace {

std::string command_names(std::string_view between) {
  std::vector<std::string_view> names;
  for (const CommandRow& row : command_rows()) names.push_back(row.name);
  return fmt::format("{}", fmt::join(names, between));
}

// Every spelling of a command's flags, with those in no table.
std::vector<std::string> all_spellings(const CommandRow& command) {
  std::vector<std::string> all;
  for (const Flag* flag : shown_flags(&command)) {
    for (std::string& spelling : spellings_of(*flag)) all.push_back(std::move(spelling));
  }
  for (const CommonFlag& flag : kCommonFlags) {
    all.push_back(fmt::format("--{}", flag.name));
    if (flag.letter != 0) all.push_back(fmt::format("-{}", flag.letter));
  }
  return all;
}

// What the branches of bash's `case` set: words, and f for files, l for a list.
std::string bash_value(const ShellValue& value) {
  return fmt::format("words={} kind={}{}",
                     shell_quoted(fmt::format("{}", fmt::join(value.words, " "))),
                     value.files ? "f" : "", value.list ? "l" : "");
}

// COMP_LINE is read instead of COMP_WORDS, which bash splits at = and :, and the part of a candidate
// that stands before the split is cut off again.
constexpr char kBashHead[] = R"(# bash completions of mkbench, printed by: mkbench completions bash
_mkbench() {
  local line="${COMP_LINE:0:COMP_POINT}" word="${COMP_WORDS[COMP_CWORD]}"
  local tokens token="" command=run flag="" value words="" kind="" last base candidate
  read -ra tokens <<< "$line"
  case "$line" in
    *[[:space:]]) ;;
    *) token="${tokens[${#tokens[@]} - 1]}" && unset "tokens[${#tokens[@]} - 1]" ;;
  esac
  COMPREPLY=()
)";

constexpr char kBashTail[] = R"(  case "$word" in = | :) word="" ;; esac
  last="$value"
  case "$kind" in *l*) last="${value##*,}" ;; esac
  base="${token%"$last"}"
  while IFS= read -r candidate; do
    candidate="$base$candidate"
    COMPREPLY+=("${candidate:$((${#token} - ${#word}))}")
  done < <(compgen -W "$words" -- "$last"; case "$kind" in *f*) compgen -f -- "$last" ;; esac)
  case "$kind" in *f*) compopt -o filenames 2> /dev/null ;; esac
  case "$kind" in *l*) compopt -o nospace 2> /dev/null ;; esac
}
complete -F _mkbench mkbench
)";

std::string zsh_action(const ShellValue& value) {
  std::string words = fmt::format("{}", fmt::join(value.words, " "));
  words = with_replaced(words, ":", "\\:");
  if (value.words.empty()) return value.files ? "_files" : " ";
  const std::string add = (value.list ? "_sequence compadd - " : "compadd - ") + words;
  return fmt::format("{{{}{}}}", add, value.files ? "; _files" : "");
}

// Brackets and colons end parts of what _arguments reads.
std::string zsh_help(std::string_view help) {
  std::string text = with_replaced(std::string(help), "[", "(");
  text = with_replaced(text, "]", ")");
  return with_replaced(text, ":", "\\:");
}

// The lines of one flag: what _arguments of zsh takes.
std::string zsh_flag(const Flag& flag) {
  std::string text;
  for (const std::string& spelling : spellings_of(flag)) {
    std::string line = spelling;
    if (!flag.is_switch()) line += spelling.starts_with("--") ? "=" : "+";
    line += fmt::format("[{}]", zsh_help(flag.help));
    if (!flag.is_switch())
      line += fmt::format(":{}:{}", zsh_help(flag.value), zsh_action(value_of(flag)));
    text += fmt::format("        {}\n", shell_quoted((flag.is_list() ? "*" : "") + line));
  }
  return text;
}

constexpr char kZshHead[] = R"(#compdef mkbench
# zsh completions of mkbench, printed by: mkbench completions zsh
_mkbench() {
  local command=run
  local -a commands flags
)";

constexpr char kFishHead[] = R"(# fish completions of mkbench, printed by: mkbench completions fish
function __mkbench_in
    set -l words (commandline -opc)
    set -l command run
    if set -q words[2]; and contains -- $words[2] @COMMANDS@
        set command $words[2]
    end
    contains -- $command $argv
end
function __mkbench_first
    test (count (commandline -opc)) -eq 1
end
function __mkbench_words
    printf '%s\n' $argv
end
complete -c mkbench -f
)";

// fish's single quotes take a backslash before a quote.
std::string fish_quoted(const std::string& text) {
  return "'" + with_replaced(with_replaced(text, "\\", "\\\\"), "'", "\\'") + "'";
}

std::string fish_value(const ShellValue& value) {
  const std::string words = fmt::format("{}", fmt::join(value.words, " "));
  if (value.words.empty()) return value.files ? " -r -F" : " -x";
  const std::string offer =
      value.list ? fmt::format("(__fish_complete_list , \"__mkbench_words {}\")", words) : words;
  return fmt::format(" {} -a {}", value.files ? "-r -F" : "-x", fish_quoted(offer));
}

std::string fish_flag(const Flag& flag) {
  const std::string in = fmt::format("__mkbench_in {}", fmt::join(commands_of(flag), " "));
  std::string text;
  for (const std::string& spelling : spellings_of(flag)) {
    const bool is_long = spelling.starts_with("--");
    text += fmt::format("complete -c mkbench -n {} -{} {}{} -d {}\n", fish_quoted(in),
                        is_long ? "l" : "s", spelling.substr(is_long ? 2 : 1),
                        flag.is_switch() ? "" : fish_value(value_of(flag)),
                        fish_quoted(std::string(flag.help)));
  }
  return text;
}

}  // namespace

std::string bash_completions() {
  std::string text = kBashHead;
  text +=
      fmt::format("  case \"${{tokens[1]}}\" in\n    {}) command=\"${{tokens[1]}}\" ;;\n  esac\n",
                  command_names(" | "));
  // Flags, where one has been begun.
  text +=
      "  case \"$token\" in\n    --*=*) flag=\"${token%%=*}\" value=\"${token#*=}\" ;;\n    -*)\n"
      "      case \"$command\" in\n";
  for (const CommandRow& row : command_rows()) {
    text +=
        fmt::format("        {}) words='{}' ;;\n", row.name, fmt::join(all_spellings(row), " "));
  }
  text +=
      "      esac\n      value=\"$token\"\n      ;;\n"
      "    *) flag=\"${tokens[${#tokens[@]} - 1]}\" value=\"$token\" ;;\n  esac\n";
  // The value of a flag, else an argument.
  text += "  case \"$command $flag\" in\n    *' ') ;;\n";
  for (const Flag* flag : shown_flags()) {
    if (flag->is_switch()) continue;
    std::vector<std::string> patterns;
    for (const std::string_view command : commands_of(*flag)) {
      for (const std::string& spelling : spellings_of(*flag))
        patterns.push_back(fmt::format("'{} {}'", command, spelling));
    }
    text += fmt::format("    {}) {} ;;\n", fmt::join(patterns, " | "), bash_value(value_of(*flag)));
  }
  text += "    *)\n      case \"$command\" in\n";
  for (const CommandRow& row : command_rows()) {
    if (!row.arguments.empty())
      text += fmt::format("        {}) {} ;;\n", row.name, bash_value(arguments_of(row)));
  }
  text += fmt::format(
      "      esac\n      if [ ${{#tokens[@]}} = 1 ]; then words='{}' kind=''; fi\n      ;;\n  "
      "esac\n",
      command_names(" "));
  return text + kBashTail;
}

std::string zsh_completions() {
  std::string text = kZshHead;
  text += "  commands=(\n";
  for (const CommandRow& row : command_rows()) {
    text += fmt::format("    {}\n", shell_quoted(fmt::format("{}:{}", row.name, row.help)));
  }
  text +=
      "  )\n  if (( CURRENT == 2 )) && [[ $words[2] != -* ]]; then\n"
      "    _describe command commands\n    return\n  fi\n";
  text += fmt::format(
      "  case $words[2] in\n    ({}) command=$words[2]; shift words; (( CURRENT-- )) ;;\n  esac\n",
      command_names("|"));
  text += "  case $command in\n";
  for (const CommandRow& row : command_rows()) {
    text += fmt::format("    ({})\n      flags=(\n", row.name);
    for (const Flag* flag : shown_flags(&row)) text += zsh_flag(*flag);
    for (const CommonFlag& flag : kCommonFlags) {
      text += fmt::format("        '--{}[{}]'\n", flag.name, flag.help);
      if (flag.letter != 0) text += fmt::format("        '-{}[{}]'\n", flag.letter, flag.help);
    }
    if (!row.arguments.empty()) {
      text +=
          fmt::format("        {}\n", shell_quoted(fmt::format("*:{}:{}", zsh_help(row.arguments),
                                                               zsh_action(arguments_of(row)))));
    }
    text += "      ) ;;\n";
  }
  return text +
         "  esac\n  _arguments -s -S $flags\n}\n"
         "if [[ $funcstack[1] == _mkbench ]]; then _mkbench \"$@\"; else compdef _mkbench "
         "mkbench; fi\n";
}

std::string fish_completions() {
  std::string text = with_replaced(kFishHead, "@COMMANDS@", command_names(" "));
  for (const CommandRow& row : command_rows()) {
    text += fmt::format("complete -c mkbench -n __mkbench_first -a {} -d {}\n", row.name,
                        fish_quoted(std::string(row.help)));
    const ShellValue value = arguments_of(row);
    const std::string in = fish_quoted(fmt::format("__mkbench_in {}", row.name));
    if (!value.words.empty())
      text += fmt::format("complete -c mkbench -n {} -a {}\n", in,
                          fish_quoted(fmt::format("{}", fmt::join(value.words, " "))));
    if (value.files) text += fmt::format("complete -c mkbench -n {} -F\n", in);
  }
  for (const Flag* flag : shown_flags()) text += fish_flag(*flag);
  for (const CommonFlag& flag : kCommonFlags) {
    text += fmt::format("complete -c mkbench -l {}{} -d {}\n", flag.name,
                        flag.letter != 0 ? fmt::format(" -s {}", flag.letter) : "",
                        fish_quoted(std::string(flag.help)));
  }
  return text;
}

}  // namespace mkbench
