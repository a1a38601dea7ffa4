// mkbench: parse, then one command. The parent process never touches CUDA or libtorch; workers do.
#include <fmt/format.h>

#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "harness/commands/commands.h"
#include "harness/options.h"
#include "harness/report/verdict.h"
#include "harness/worker/interrupt.h"
#include "harness/worker/supervisor.h"
#include "harness/worker/worker_main.h"
#include "references/error.h"

namespace mkbench {
namespace {

int run_main(const std::vector<std::string>& argv) {
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
  switch (options.command) {
    case Command::kRun:
    case Command::kParity:
      return run_command(options, argv);
    case Command::kDoctor:
      return doctor_command(options);
    case Command::kPlot:
      return plot_command(options);
    case Command::kTune:
      return tune_command(options);
    case Command::kSelftest:
      return selftest_command(options);
    case Command::kList:
      return list_command(options);
  }
  return 0;
}

}  // namespace
}  // namespace mkbench

int main(int argc, char** argv) {
  using namespace mkbench;
  try {
    if (argc == 4 && std::string_view(argv[1]) == kWorkerCommand) {
      return worker_main(std::stoi(argv[2]), std::stoi(argv[3]));
    }
    return run_main({argv, argv + argc});
  } catch (const Error& error) {
    fmt::print(stderr, "mkbench: error: {}\n", error.what());
    return exit_code(verdict_of(error.kind()));
  } catch (const std::exception& error) {
    fmt::print(stderr, "mkbench: error: {}\n", error.what());
    return exit_code(Verdict::kRuntimeError);
  }
}
