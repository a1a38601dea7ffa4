// Command lines as tests give them to the parser.
#pragma once

#include <iterator>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "harness/cli/run_settings.h"
#include "references/base/error.h"
#include "tests/support/catch2.h"

namespace mkbench::testing {

using Variables = std::map<std::string, std::string>;

// The words of a command line that has no empty ones.
inline std::vector<std::string> words(const std::string& line) {
  std::istringstream in(line);
  return {std::istream_iterator<std::string>(in), {}};
}

inline ParsedCommandLine parse(const std::vector<std::string>& args,
                               const Variables& variables = {}) {
  const EnvironmentLookup lookup = [&](const std::string& name) -> std::optional<std::string> {
    const auto at = variables.find(name);
    if (at == variables.end()) return std::nullopt;
    return at->second;
  };
  std::vector<std::string> names;
  for (const auto& entry : variables) names.push_back(entry.first);
  return parse_command_line(args, lookup, names);
}

// The settings of a command line, or those of a base S of them.
template <typename S = RunSettings>
S settings_of(const std::vector<std::string>& args, const Variables& variables = {}) {
  const ParsedCommandLine parsed = parse(args, variables);
  REQUIRE_FALSE(parsed.early_exit.has_value());
  return parsed.as<S>();
}

// The value of a flag as it was given, or its default.
inline std::string value_of(const std::vector<std::string>& args, const std::string& flag) {
  return options_to_json(settings_of<CommandSettings>(args))[flag]["value"];
}

// The message of the usage error that `args` must cause.
inline std::string refusal(const std::vector<std::string>& args, const Variables& variables = {}) {
  try {
    parse(args, variables);
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::kBadInput);
    return error.what();
  }
  FAIL("accepted: " << (args.empty() ? "" : args.back()));
  return "";
}

}  // namespace mkbench::testing
