#include "harness/parent/parent_main.h"

#include <fmt/format.h>

#include <cstdio>

#include "harness/parent/options.h"
#include "harness/report/verdict.h"
#include "harness/flow/interrupt.h"
#include "references/base/error.h"

namespace mkbench {
namespace {

int run_command_line(const std::vector<std::string>& argv, DoJob do_job) {
  const std::vector<std::string> args(argv.begin() + 1, argv.end());
  const ParsedCommandLine parsed =
      parse_command_line(args, process_environment(), process_environment_names());
  if (parsed.early_exit) {
    fmt::print("{}", parsed.early_exit->text);
    return parsed.early_exit->exit_code;
  }
  const Options& options = parsed.options;
  for (const std::string& warning : options.warnings)
    fmt::print(stderr, "mkbench: warning: {}\n", warning);
  install_interrupt_handlers();
  return options.command->run(options, {argv, do_job});
}

}  // namespace

int parent_main(const std::vector<std::string>& argv, DoJob do_job) {
  try {
    return run_command_line(argv, do_job);
  } catch (const Error& error) {
    fmt::print(stderr, "mkbench: error: {}\n", error.what());
    return exit_code(verdict_of(error.kind()));
  } catch (const std::exception& error) {
    fmt::print(stderr, "mkbench: error: {}\n", error.what());
    return exit_code(Verdict::kRuntimeError);
  }
}

}  // namespace mkbench
