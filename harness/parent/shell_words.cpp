#include "harness/parent/shell_words.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "harness/engines/registry.h"
#include "references/model_row.h"

namespace mkbench {
namespace {

std::vector<std::string> split(std::string_view text, char at) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(at, begin), text.size());
    parts.emplace_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

std::vector<std::string> model_words() {
  std::vector<std::string> words;
  for (const ModelRow& row : model_rows()) {
    if (!row.help.empty()) words.emplace_back(row.name);
  }
  return words;
}

// The words of a list whose items have names.
std::vector<std::string> words_of_list(std::string_view flag) {
  if (flag == "model") return model_words();
  std::vector<std::string> words;
  if (flag == "engine") {
    words = engine_names(kCandidate);
    words.emplace_back(kMegakernel);
  } else if (flag == "compare") {
    words = engine_names(kYardstick);
    words.emplace_back(kNoBaseline);
  }
  return words;
}

bool is_word(const std::string& text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return std::islower(c) != 0 || c == '-';
  });
}

}  // namespace

ShellValue value_of(const Flag& flag) {
  ShellValue value;
  if (flag.value.find('|') != std::string_view::npos) {
    value.words = split(flag.value, '|');
  } else if (flag.is_list()) {
    value = {.words = words_of_list(flag.name), .files = false, .list = true};
    value.files = flag.name == "engine" || flag.name == "model";
  } else {
    value.files =
        flag.value == "PATH" || flag.value == "FILE" || flag.value == "DIR" || flag.value == "STEP";
  }
  return value;
}

// "[engines|models|devices|errors]" has words, "[add REPORT...]" both, "BASE HEAD" paths.
ShellValue arguments_of(const CommandRow& command) {
  ShellValue value;
  std::string bare;
  for (const char c : command.arguments) {
    if (c != '[' && c != ']' && c != '.') bare += c;
  }
  for (const std::string& argument : split(bare, ' ')) {
    for (const std::string& word : split(argument, '|')) {
      if (is_word(word)) {
        value.words.push_back(word);
      } else if (!word.empty() && word.find('/') == std::string::npos) {
        value.files = true;
      }
    }
  }
  if (command.arguments == "MODEL") value.words = model_words();
  return value;
}

std::vector<const Flag*> shown_flags(const CommandRow* command) {
  std::vector<const Flag*> flags;
  for (const Flag& flag : flag_table()) {
    if (!flag.hidden && (command == nullptr || (flag.group & command->flags) != 0))
      flags.push_back(&flag);
  }
  return flags;
}

std::vector<std::string_view> commands_of(const Flag& flag) {
  std::vector<std::string_view> names;
  for (const CommandRow& row : command_rows()) {
    if (!flag.hidden && (flag.group & row.flags) != 0) names.push_back(row.name);
  }
  return names;
}

std::vector<std::string> spellings_of(const Flag& flag) {
  std::vector<std::string> all;
  if (flag.letter != 0) all.push_back(fmt::format("-{}", flag.letter));
  all.push_back(fmt::format("--{}", flag.name));
  if (flag.is_switch() && flag.default_text == "on")
    all.push_back(fmt::format("--no-{}", flag.name));
  return all;
}

std::string with_replaced(std::string text, std::string_view from, std::string_view to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
  return text;
}

}  // namespace mkbench
