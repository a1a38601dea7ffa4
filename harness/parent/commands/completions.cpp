// `mkbench completions`: what a shell reads to complete a command line of mkbench.
#include "harness/parent/completions.h"

#include <fmt/format.h>

#include "harness/parent/option_values.h"
#include "harness/parent/options.h"

namespace mkbench {

void require_completions_arguments(Options& options) {
  const auto& words = options.arguments;
  if (words.size() != 1 || (words[0] != "bash" && words[0] != "zsh" && words[0] != "fish"))
    bad_usage(fmt::format("mkbench completions: found '{}', wanted one of bash, zsh, fish",
                          words.empty() ? "" : words.back()));
}

int completions_command(const Options& options, const Invocation&) {
  const std::string& shell = options.arguments[0];
  fmt::print("{}", shell == "bash"  ? bash_completions()
                   : shell == "zsh" ? zsh_completions()
                                    : fish_completions());
  return 0;
}

}  // namespace mkbench
