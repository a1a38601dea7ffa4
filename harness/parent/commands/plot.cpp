#include "harness/parent/commands/plot.h"

#include <fmt/format.h>

#include "harness/parent/option_values.h"
#include "harness/parent/options.h"
#include "harness/parent/python_script.h"
#include "harness/parent/recompute.h"
#include "harness/report/verdict.h"
#include "references/base/error.h"

namespace mkbench {

namespace fs = std::filesystem;

int draw_plots(const std::vector<fs::path>& reports, const fs::path& out, std::string& problem) {
  PythonScript script{.name = "plot_report.py", .arguments = {}};
  for (const fs::path& report : reports) script.arguments.push_back(report.string());
  script.arguments.insert(script.arguments.end(), {"--out", out.string()});
  return run_script(script, problem);
}

void require_plot_arguments(Options& options) {
  if (options.arguments.empty())
    bad_usage("mkbench plot: name at least one report.json or report folder");
}

int plot_command(const Options& options, const Invocation&) {
  std::vector<fs::path> reports;
  for (const std::string& argument : options.arguments) {
    const fs::path path = report_file(argument);
    if (!fs::is_regular_file(path)) {
      throw Error(ErrorKind::kBadInput,
                  fmt::format("mkbench plot: {}: no such report", path.string()));
    }
    reports.push_back(path);
  }
  const fs::path out =
      options.out.empty() ? reports.front().parent_path() / "plots" : fs::path(options.out);
  std::string problem;
  const int status = draw_plots(reports, out, problem);
  if (status < 0) throw Error(ErrorKind::kRuntime, "mkbench plot: " + problem);
  if (status == 0) fmt::print("{}\n", out.string());
  constexpr int kBadReport = 2, kNothingToPlot = 3;  // exit codes of the script
  if (status == kBadReport || status == kNothingToPlot) return exit_code(Verdict::kBadInput);
  return status == 0 ? 0 : 1;
}

}  // namespace mkbench
