#include "harness/parent/history.h"

#include <fmt/format.h>

#include <algorithm>

#include "harness/parent/option_values.h"
#include "harness/parent/options.h"
#include "harness/parent/python_script.h"
#include "harness/parent/recompute.h"
#include "harness/report/verdict.h"
#include "references/base/error.h"

namespace mkbench {
namespace {

constexpr char kAdd[] = "add";

int show_history(const Options& options) {
  PythonScript script{.name = "history.py",
                      .arguments = {history_file().string(), "show"},
                      .input = {},
                      .prints_result = true};
  if (options.plot_history) {
    const std::string out = options.out.empty() ? "mkbench-history" : options.out;
    script.arguments.insert(script.arguments.end(), {"--plot", out});
  }
  std::string problem;
  const int status = run_script(script, problem);
  if (status < 0) throw Error(ErrorKind::kRuntime, "history: " + problem);
  constexpr int kBadHistory = 2, kNothingToPlot = 3;  // exit codes of the script
  if (status == kBadHistory || status == kNothingToPlot) return exit_code(Verdict::kBadInput);
  return status;
}

}  // namespace

void require_history_arguments(Options& options) {
  const std::vector<std::string>& words = options.arguments;
  // A variable of the environment stands for all calls, and is ignored by those that it does not fit.
  const auto given = [&](const char* name) {
    return std::any_of(options.values.begin(), options.values.end(), [&](const OptionValue& v) {
      return v.name == name && v.source == "command line";
    });
  };
  if (!words.empty() && words.front() != kAdd)
    bad_usage(
        fmt::format("history: found '{}', wanted nothing, or add and reports", words.front()));
  if (words.size() == 1) bad_usage("history add: found no report, wanted at least one");
  if (words.empty() && given("label")) bad_usage("--label goes with history add");
  if (!words.empty() && given("plot"))
    bad_usage("--plot goes with history alone, not with history add");
}

int history_command(const Options& options, const Invocation&) {
  if (options.arguments.empty()) return show_history(options);
  for (size_t i = 1; i < options.arguments.size(); ++i) {
    const std::filesystem::path file = report_file(options.arguments[i]);
    add_to_history(read_sound_report(file, "history add"), file, options.label, true);
  }
  return 0;
}

}  // namespace mkbench
