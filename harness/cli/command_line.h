// The command line: a command's flags. The parser, the environment variables, --help and the
// report's meta.options are all made from them.
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "harness/hosts/hosts.h"
#include "harness/settings/flag.h"

namespace mkbench {

// One flag's value as it was given, for meta.options of a report.
struct OptionValue {
  std::string name;
  std::string text;
  std::string source;  // "default", "environment", "command line"
};

// Settings that every command has.
struct CommandSettings {
  std::string command;                 // its name
  std::vector<std::string> arguments;  // positional arguments
  std::vector<OptionValue> values;     // one for each flag of the command, in the flags' order
  std::string python;                  // for engines in Python and doctor; empty: the build's
  bool in_process = false;
  bool quiet = false;
  bool verbose = false;

  virtual ~CommandSettings() = default;
};

inline std::vector<Flag<CommandSettings>> talk_flags() {
  return {flag("quiet,q", "Print no progress.", &CommandSettings::quiet),
          flag("verbose,v", "Print more progress, and the whole report on stdout.",
               &CommandSettings::verbose)};
}

inline Flag<CommandSettings> python_flag() {
  return flag("python PATH",
              "The Python that runs engines ending in .py [the one that mkbench was set up with].",
              &CommandSettings::python);
}

// For commands that print a page or JSON.
template <typename S>
Flag<S> format_flag(std::string S::*field) {
  return flag("output,o md|json=md", "Format of stdout.", field, one_word_of({"md", "json"}));
}

// True if the command line or the environment gives the flag.
bool was_given(const CommandSettings& settings, std::string_view flag);
// True if the command line gives the flag. As an environment variable is set for all calls, a
// command refuses an unsuitable flag only if it was typed.
bool was_typed(const CommandSettings& settings, std::string_view flag);

// {"n-gen": {"value": "128", "source": "default"}, ...}
nlohmann::json options_to_json(const CommandSettings& settings);

// What a command needs besides its settings.
struct Invocation {
  const std::vector<std::string>& argv;
  StartHost start_host;
  bool in_process;  // engines run in this process (mkbench-all)
};

// A subcommand; the table is in commands/table.cpp.
struct CommandRow {
  std::string_view name;
  std::string_view help;       // one line
  std::string_view arguments;  // positional arguments as --help shows them; empty: none
  std::vector<Flag<CommandSettings>> flags;  // of the settings that make() returns
  std::function<std::unique_ptr<CommandSettings>()> make;
  // Refuses wrong arguments and sets what the command implies.
  std::function<void(CommandSettings&)> prepare;
  // Returns the process's exit code.
  std::function<int(const CommandSettings&, const Invocation&)> run;
};
const std::vector<CommandRow>& command_rows();

// The row of a command whose settings are S. Its flags are `flags` and talk_flags().
// `prepare` may be null: nothing to do.
template <typename S>
CommandRow command_row(std::string_view name, std::string_view help, std::string_view arguments,
                       const std::vector<Flag<S>>& flags, void (*prepare)(S&),
                       int (*run)(const S&, const Invocation&)) {
  CommandRow row{name, help, arguments, {}, [] { return std::make_unique<S>(); }, {}, {}};
  for (const Flag<S>& flag : flags) {
    row.flags.push_back(
        {flag, [set = flag.set](CommandSettings& settings, const std::string& text) {
           set(static_cast<S&>(settings), text);
         }});
  }
  for (const Flag<CommandSettings>& flag : talk_flags()) row.flags.push_back(flag);
  row.prepare = [prepare](CommandSettings& settings) {
    if (prepare != nullptr) prepare(static_cast<S&>(settings));
  };
  row.run = [run](const CommandSettings& settings, const Invocation& invocation) {
    return run(static_cast<const S&>(settings), invocation);
  };
  return row;
}

// What a command line that ends without a run (--help, --version) prints.
struct EarlyExit {
  int exit_code = 0;
  std::string text;  // for stdout
};

struct ParsedCommandLine {
  const CommandRow* command = nullptr;
  std::shared_ptr<CommandSettings> settings;
  std::vector<std::string> warnings;    // about the environment, for stderr
  std::optional<EarlyExit> early_exit;  // --help, --version

  // The settings, for a caller that knows the command's type S.
  template <typename S>
  const S& as() const {
    return dynamic_cast<const S&>(*settings);
  }
};

// The value of an environment variable; nullopt if it is not set.
using EnvironmentLookup = std::function<std::optional<std::string>(const std::string& name)>;

// Parses `args` (without the program's name): command line > environment > default.
// `environment_names` lists all MKBENCH_* variables that exist, to warn about unknown ones.
// Throws Error(kBadInput) naming the flag and, if it is unknown, the nearest known one.
ParsedCommandLine parse_command_line(const std::vector<std::string>& args,
                                     const EnvironmentLookup& lookup,
                                     const std::vector<std::string>& environment_names);
// Parses `args` without any environment variable.
ParsedCommandLine parse_command_line(const std::vector<std::string>& args);

// getenv() and the names of this process's MKBENCH_* variables.
EnvironmentLookup process_environment();
std::vector<std::string> process_environment_names();

}  // namespace mkbench
