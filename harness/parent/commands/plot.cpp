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

namespace {

// Runs a script over report files. Returns its exit status, or -1 with `problem` set when it could
// not be started.
int run_over(const std::string& name, const std::vector<fs::path>& reports, const fs::path& out,
             std::string& problem) {
  PythonScript script{.name = name, .arguments = {}};
  for (const fs::path& report : reports) script.arguments.push_back(report.string());
  script.arguments.insert(script.arguments.end(), {"--out", out.string()});
  return run_script(script, problem);
}

int draw_plots(const std::vector<fs::path>& reports, const fs::path& folder, std::string& problem) {
  return run_over("plot_report.py", reports, folder, problem);
}

int write_page(const std::vector<fs::path>& reports, const fs::path& folder, std::string& problem) {
  return run_over("report_page.py", reports, folder / kPageName, problem);
}

// A warning that says why there is no `what`.
std::string missing(const std::string& what, const std::string& script, int status,
                    const std::string& problem) {
  return fmt::format(
      "no {}: {}", what,
      problem.empty() ? fmt::format("the {} script ended with {}", script, status) : problem);
}

}  // namespace

std::vector<std::string> picture_report(const fs::path& folder, bool plots) {
  std::vector<std::string> warnings;
  const std::vector<fs::path> reports = {folder / "report.json"};
  std::string problem;
  if (plots) {
    const int status = draw_plots(reports, folder / "plots", problem);
    if (status != 0) warnings.push_back(missing("plots", "plotting", status, problem));
  }
  problem.clear();
  const int status = write_page(reports, folder, problem);
  if (status != 0) warnings.push_back(missing(kPageName, "page's", status, problem));
  return warnings;
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
  if (status == 0) {
    const int page = write_page(reports, out, problem);
    if (page != 0)
      fmt::print(stderr, "mkbench: warning: {}\n", missing(kPageName, "page's", page, problem));
    fmt::print("{}\n", out.string());
  }
  constexpr int kBadReport = 2, kNothingToPlot = 3;  // exit codes of the script
  if (status == kBadReport || status == kNothingToPlot) return exit_code(Verdict::kBadInput);
  return status == 0 ? 0 : 1;
}

}  // namespace mkbench
