#include "harness/parent/options.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>

#include "harness/engines/plugin_file.h"
#include "harness/flow/late_ids.h"
#include "harness/parent/build_info.h"
#include "harness/parent/option_values.h"
#include "references/base/error.h"

namespace mkbench {
namespace {

// Environment variables that are not flags.
const std::vector<std::string> kOtherVariables = {
    "MKBENCH_DATA_DIR",      "MKBENCH_SPIN_SCALE", "MKBENCH_VENV",
    "MKBENCH_PRESET",        "MKBENCH_CUDA",       "MKBENCH_CUDA_ARCHITECTURES",
    "MKBENCH_USE_PYPI_CUDA", "MKBENCH_JOBS",       "MKBENCH_OWN_PYTHON",
    "MKBENCH_OFFLINE",       "MKBENCH_BUILT_FILE", "MKBENCH_REMOTE_PATIENCE_S"};

std::vector<std::string> visible_names(unsigned groups) {
  std::vector<std::string> names;
  for (const Flag& flag : flag_table()) {
    if (!flag.hidden && (flag.group & groups) != 0) names.emplace_back(flag.name);
  }
  return names;
}

[[noreturn]] void refuse_extra(const std::string& extra, const CommandRow& command) {
  if (extra.size() > 1 && extra[0] == '-') {
    const std::string name = extra.substr(extra.find_first_not_of('-'));
    const std::string bare = name.substr(0, name.find('='));
    const std::string nearest = nearest_word(bare, visible_names(command.flags));
    bad_usage(fmt::format("unknown flag '{}' of 'mkbench {}'{}; --help lists all", extra,
                          command.name,
                          nearest.empty() ? "" : fmt::format("; did you mean '--{}'?", nearest)));
  }
  bad_usage(fmt::format("unexpected argument '{}' of 'mkbench {}'", extra, command.name));
}

// Removes the command from the arguments: their first word, where that is no flag. Without such a
// word the command is the table's first row.
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

// Checks that concern several flags.
void check_together(Options& options) {
  for (const OptionValue& v : options.values) {
    const bool limits = v.name == "max-regress" || v.name == "fail-on";
    const bool of_run = (options.command->flags & kMeasureFlags) != 0;
    const bool compares = !options.baseline.empty() || !options.builds.empty();
    if (limits && of_run && !compares && v.source == "command line")
      bad_usage(fmt::format("--{} goes with --baseline", v.name));
  }
  const int processes = options.processes.value_or(1);
  if (options.in_process && processes > 1)
    bad_usage(fmt::format("--in-process is one process, --processes is {}", processes));
  const int blocks = options.blocks.value_or(std::max(kDefaultBlocks, processes));
  if (processes > blocks)
    bad_usage(fmt::format("--blocks {} is below --processes {}", blocks, processes));
  if (options.max_blocks < blocks) {
    if (was_given(options, "max-blocks"))
      bad_usage(fmt::format("--max-blocks {} is below --blocks {}", options.max_blocks, blocks));
    options.max_blocks = blocks;
  }
  const auto python =
      std::find_if(options.engines.begin(), options.engines.end(), is_python_engine);
  if (options.in_process && python != options.engines.end()) {
    bad_usage(fmt::format("--in-process: {} is an engine in Python and has a process of its own",
                          *python));
  }
  if (!options.ids.empty() && was_given(options, "n-depth")) {
    bad_usage("--ids and --n-depth exclude each other: the depth is the number of ids less one");
  }
  if (!options.ids.empty() && was_given(options, "n-prompt"))
    bad_usage("--ids and --n-prompt exclude each other");
  if (!options.resume.empty()) {
    if (options.dry_run) bad_usage("--resume and --dry-run exclude each other");
    if (was_given(options, "only")) bad_usage("--resume and --only exclude each other");
  }
}

struct CliApp {
  CLI::App app;
  std::vector<std::string> given;     // one for each table entry
  std::vector<CLI::Option*> handles;  // null where the command has no such flag
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
  const std::vector<Flag>& table = flag_table();
  cli.given.resize(table.size());
  cli.handles.assign(table.size(), nullptr);
  const bool is_default = &command == &command_rows().front();
  cli.app.name(is_default ? fmt::format("mkbench [{}]", command.name)
                          : fmt::format("mkbench {}", command.name));
  cli.app.description(
      "mkbench: is a single-kernel LLM decoder right, how fast is it, and where does the time go?\n"
      "Commands:" +
      commands_text());
  cli.app.footer(
      "Every flag has an environment variable: MKBENCH_ and its name in upper case, - as _ "
      "(MKBENCH_N_GEN).\n"
      "Command line > environment > default. L is a list: 16,32 or 0-4096*2 or 128-1024+128.");
  cli.app.set_help_flag("-h,--help", "this text");
  cli.app.allow_extras();
  for (size_t i = 0; i < table.size(); ++i) {
    const Flag& flag = table[i];
    if ((flag.group & command.flags) == 0) continue;
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
      // join() keeps its default separator: with a comma CLI11 would split the items and drop empty
      // ones.
      if (flag.is_list()) cli.handles[i]->join();
    }
    if (flag.hidden) cli.handles[i]->group("");
  }
  if (!command.arguments.empty())
    cli.app.add_option("arguments", cli.arguments, std::string(command.arguments));
}

}  // namespace

bool was_given(const Options& options, std::string_view flag) {
  const auto at = std::find_if(options.values.begin(), options.values.end(),
                               [&](const OptionValue& v) { return v.name == flag; });
  return at != options.values.end() && at->source != "default";
}

ParsedCommandLine parse_command_line(const std::vector<std::string>& args,
                                     const EnvironmentLookup& lookup,
                                     const std::vector<std::string>& environment_names) {
  ParsedCommandLine parsed;
  std::vector<std::string> rest = args;
  const CommandRow& command = take_command(rest);
  Options& options = parsed.options;
  options.command = &command;
  if (std::find(rest.begin(), rest.end(), "--version") != rest.end()) {
    parsed.early_exit = EarlyExit{0, version_text() + "\n"};
    return parsed;
  }
  CliApp cli;
  build_app(cli, command);
  try {
    std::vector<std::string> reversed(rest.rbegin(),
                                      rest.rend());  // CLI11 takes them from the back
    cli.app.parse(reversed);
  } catch (const CLI::CallForHelp&) {
    parsed.early_exit = EarlyExit{0, cli.app.help()};
    return parsed;
  } catch (const CLI::ParseError& error) {
    // CLI11's own exit codes (106, 109, ...) are not ours.
    bad_usage(error.what());
  }
  if (const std::vector<std::string> extras = cli.app.remaining(); !extras.empty()) {
    refuse_extra(extras.front(), command);
  }
  const std::vector<Flag>& table = flag_table();
  std::vector<std::string> known = kOtherVariables;
  for (size_t i = 0; i < table.size(); ++i) {
    const Flag& flag = table[i];
    known.push_back(flag.env());
    if (cli.handles[i] == nullptr) continue;
    OptionValue value{std::string(flag.name), std::string(flag.default_text), "default"};
    if (cli.handles[i]->count() > 0) {
      value.text = cli.given[i];
      value.source = "command line";
      if (flag.is_list()) std::replace(value.text.begin(), value.text.end(), '\n', ',');
    } else if (const std::optional<std::string> text = lookup(flag.env()); text && !text->empty()) {
      value.text = *text;  // an empty variable counts as not set
      value.source = "environment";
    }
    const bool given = value.source != "default";
    if (given && value.text.empty()) bad_usage(fmt::format("--{} is empty", value.name));
    try {
      if (!value.text.empty()) flag.apply(options, value.text);
    } catch (const Error& error) {
      if (value.source != "environment") throw;
      bad_usage(fmt::format("{} (from {})", error.what(), flag.env()));
    }
    // 53 bits pass through every reader of JSON.
    if (flag.name == "seed")
      options.prompt_seed = given ? options.seed : random_below(uint64_t{1} << 53);
    if (!flag.hidden || given) options.values.push_back(value);
  }
  options.arguments = cli.arguments;
  if (command.prepare != nullptr) command.prepare(options);
  check_together(options);
  for (const std::string& name : environment_names) {
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    const std::string nearest = nearest_word(name, known);
    options.warnings.push_back(
        fmt::format("environment variable {} is unknown and ignored{}", name,
                    nearest.empty() ? "" : fmt::format("; did you mean {}?", nearest)));
  }
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

nlohmann::json options_to_json(const Options& options) {
  nlohmann::json all = nlohmann::json::object();
  for (const OptionValue& value : options.values) {
    all[value.name] = {{"value", value.text}, {"source", value.source}};
  }
  return all;
}

}  // namespace mkbench
