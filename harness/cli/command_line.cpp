#include "harness/cli/command_line.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>

#include "harness/archive/build_info.h"
#include "references/base/error.h"

namespace mkbench {
namespace {

// Environment variables that are not flags.
const std::vector<std::string> kOtherVariables = {
    "MKBENCH_DATA_DIR",      "MKBENCH_SPIN_SCALE", "MKBENCH_VENV",
    "MKBENCH_PRESET",        "MKBENCH_CUDA",       "MKBENCH_CUDA_ARCHITECTURES",
    "MKBENCH_USE_PYPI_CUDA", "MKBENCH_JOBS",       "MKBENCH_OWN_PYTHON",
    "MKBENCH_OFFLINE",       "MKBENCH_BUILT_FILE", "MKBENCH_REMOTE_PATIENCE_S"};

std::vector<std::string> visible_names(const CommandRow& command) {
  std::vector<std::string> names;
  for (const FlagWords& flag : command.flags) {
    if (!flag.hidden) names.emplace_back(flag.name);
  }
  return names;
}

[[noreturn]] void refuse_extra(const std::string& extra, const CommandRow& command) {
  if (extra.size() > 1 && extra[0] == '-') {
    const std::string name = extra.substr(extra.find_first_not_of('-'));
    const std::string bare = name.substr(0, name.find('='));
    const std::string nearest = nearest_word(bare, visible_names(command));
    bad_usage(fmt::format("unknown flag '{}' of 'mkbench {}'{}; --help lists all", extra,
                          command.name,
                          nearest.empty() ? "" : fmt::format("; did you mean '--{}'?", nearest)));
  }
  bad_usage(fmt::format("unexpected argument '{}' of 'mkbench {}'", extra, command.name));
}

// Removes the command from the arguments: the first word, unless that is a flag. Without a command
// the first of command_rows() is used.
const CommandRow& take_command(std::vector<std::string>& args) {
  if (args.empty() || args[0].empty() || args[0][0] == '-') return command_rows().front();
  const std::string word = args[0];
  std::vector<std::string> names;
  for (const CommandRow& row : command_rows()) {
    if (row.name == word) {
      args.erase(args.begin());
      return row;
    }
    names.emplace_back(row.name);
  }
  const std::string nearest = nearest_word(word, names);
  bad_usage(fmt::format("unknown command '{}'{}; commands: {}", word,
                        nearest.empty() ? "" : fmt::format("; did you mean '{}'?", nearest),
                        fmt::join(names, ", ")));
}

// Between the values of a list's flag that is given several times, until they are joined by commas:
// a character that no path has, because CLI11 splits there and drops empty items.
constexpr char kBetweenGiven = '\x1f';

struct CliApp {
  CLI::App app;
  std::vector<std::string> given;  // one for each flag of the command
  std::vector<CLI::Option*> handles;
  std::vector<std::string> arguments;
};

std::string commands_text() {
  std::string text;
  for (const CommandRow& row : command_rows()) {
    text += fmt::format(
        "\n  {:<32} {}",
        fmt::format("{}{}{}", row.name, row.arguments.empty() ? "" : " ", row.arguments), row.help);
  }
  return text;
}

void build_app(CliApp& cli, const CommandRow& command) {
  cli.given.resize(command.flags.size());
  cli.handles.assign(command.flags.size(), nullptr);
  const bool is_default = &command == &command_rows().front();
  cli.app.name(is_default ? fmt::format("mkbench [{}]", command.name)
                          : fmt::format("mkbench {}", command.name));
  cli.app.description(
      "mkbench: is a single-kernel LLM decoder right, how fast is it, and where does the time go?\n"
      "Commands:" +
      commands_text());
  cli.app.footer(
      "Every option has an environment variable: MKBENCH_ and its name in upper case, - as _ "
      "(MKBENCH_N_GEN).\n"
      "Command line > environment > default. L is a list: 16,32 or 0-4096*2 or 128-1024+128.");
  cli.app.set_help_flag("-h,--help", "this text");
  cli.app.allow_extras();
  for (size_t i = 0; i < command.flags.size(); ++i) {
    const FlagWords& flag = command.flags[i];
    std::string names = fmt::format("--{}", flag.name);
    if (flag.letter != 0) names = fmt::format("-{},{}", flag.letter, names);
    std::string help(flag.help);
    if (!flag.default_text.empty() && !flag.is_switch())
      help += fmt::format(" [{}]", flag.default_text);
    if (flag.is_switch()) {
      if (flag.default_text == "on") names += fmt::format(",!--no-{}", flag.name);
      cli.handles[i] = cli.app.add_flag(names, cli.given[i], help);
    } else {
      cli.handles[i] =
          cli.app.add_option(names, cli.given[i], help)->type_name(std::string(flag.value));
      if (flag.is_list()) cli.handles[i]->join(kBetweenGiven);
    }
    if (flag.hidden) cli.handles[i]->group("");
  }
  if (!command.arguments.empty())
    cli.app.add_option("arguments", cli.arguments, std::string(command.arguments));
}

// Gives a flag the value of the command line, else of the environment, else its default.
void set_flag(const Flag<CommandSettings>& flag, const CLI::Option& handle,
              const std::string& typed, const EnvironmentLookup& lookup,
              CommandSettings& settings) {
  OptionValue value{std::string(flag.name), std::string(flag.default_text), "default"};
  if (handle.count() > 0) {
    value.text = typed;
    value.source = "command line";
    if (flag.is_list()) std::replace(value.text.begin(), value.text.end(), kBetweenGiven, ',');
  } else if (const std::optional<std::string> text = lookup(flag.env()); text && !text->empty()) {
    value.text = *text;  // an empty variable counts as not set
    value.source = "environment";
  }
  const bool given = value.source != "default";
  if (given && value.text.empty()) bad_usage(fmt::format("--{} is empty", value.name));
  try {
    if (!value.text.empty()) flag.set(settings, value.text);
  } catch (const Error& error) {
    if (value.source != "environment") throw;
    bad_usage(fmt::format("{} (from {})", error.what(), flag.env()));
  }
  if (!flag.hidden || given) settings.values.push_back(value);
}

// Warnings about MKBENCH_* variables that no command and no script reads.
std::vector<std::string> environment_warnings(const std::vector<std::string>& environment_names) {
  std::vector<std::string> known = kOtherVariables, warnings;
  for (const CommandRow& row : command_rows()) {
    for (const FlagWords& flag : row.flags) known.push_back(flag.env());
  }
  for (const std::string& name : environment_names) {
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    const std::string nearest = nearest_word(name, known);
    warnings.push_back(
        fmt::format("environment variable {} is unknown and ignored{}", name,
                    nearest.empty() ? "" : fmt::format("; did you mean {}?", nearest)));
  }
  return warnings;
}

// Refuses a flag given twice: CLI11's own message does not say what to do.
void refuse_repeated(const CliApp& cli, const CommandRow& command) {
  for (size_t i = 0; i < cli.handles.size(); ++i) {
    const FlagWords& flag = command.flags[i];
    if (!flag.is_list() && cli.handles[i]->count() > 1)
      bad_usage(
          fmt::format("--{}: found {} times, wanted once", flag.name, cli.handles[i]->count()));
  }
}

}  // namespace

bool was_given(const CommandSettings& settings, std::string_view flag) {
  return std::any_of(settings.values.begin(), settings.values.end(),
                     [&](const OptionValue& v) { return v.name == flag && v.source != "default"; });
}

bool was_typed(const CommandSettings& settings, std::string_view flag) {
  return std::any_of(settings.values.begin(), settings.values.end(), [&](const OptionValue& v) {
    return v.name == flag && v.source == "command line";
  });
}

ParsedCommandLine parse_command_line(const std::vector<std::string>& args) {
  return parse_command_line(args, [](const std::string&) { return std::nullopt; }, {});
}

ParsedCommandLine parse_command_line(const std::vector<std::string>& args,
                                     const EnvironmentLookup& lookup,
                                     const std::vector<std::string>& environment_names) {
  ParsedCommandLine parsed;
  std::vector<std::string> rest = args;
  if (!rest.empty() && rest[0] == "help") {  // mkbench help [COMMAND]
    rest.erase(rest.begin());
    rest.emplace_back("--help");
  }
  const CommandRow& command = take_command(rest);
  parsed.command = &command;
  if (std::find(rest.begin(), rest.end(), "--version") != rest.end()) {
    parsed.early_exit = EarlyExit{0, version_text() + "\n"};
    return parsed;
  }
  CliApp cli;
  build_app(cli, command);
  try {
    std::vector<std::string> reversed(rest.rbegin(),
                                      rest.rend());  // CLI11 takes arguments from the back
    cli.app.parse(reversed);
  } catch (const CLI::CallForHelp&) {
    parsed.early_exit = EarlyExit{0, cli.app.help()};
    return parsed;
  } catch (const CLI::ParseError& error) {
    refuse_repeated(cli, command);
    // CLI11's own exit codes (106, 109, ...) are not ours.
    bad_usage(error.what());
  }
  if (const std::vector<std::string> extras = cli.app.remaining(); !extras.empty()) {
    refuse_extra(extras.front(), command);
  }
  parsed.settings = command.make();
  CommandSettings& settings = *parsed.settings;
  settings.command = command.name;
  for (size_t i = 0; i < command.flags.size(); ++i)
    set_flag(command.flags[i], *cli.handles[i], cli.given[i], lookup, settings);
  settings.arguments = cli.arguments;
  command.prepare(settings);
  parsed.warnings = environment_warnings(environment_names);
  return parsed;
}

EnvironmentLookup process_environment() {
  return [](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    if (value == nullptr) return std::nullopt;
    return std::string(value);
  };
}

std::vector<std::string> process_environment_names() {
  std::vector<std::string> names;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    if (text.starts_with("MKBENCH_")) names.emplace_back(text.substr(0, text.find('=')));
  }
  return names;
}

nlohmann::json options_to_json(const CommandSettings& settings) {
  nlohmann::json all = nlohmann::json::object();
  for (const OptionValue& value : settings.values) {
    all[value.name] = {{"value", value.text}, {"source", value.source}};
  }
  return all;
}

}  // namespace mkbench
