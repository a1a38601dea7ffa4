#include "harness/cli/commands/plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "harness/archive/recompute.h"
#include "harness/cli/command_line.h"
#include "harness/cli/python_script.h"
#include "harness/report/print_stderr.h"
#include "harness/report/verdict.h"
#include "references/base/error.h"
#include "references/base/one_line.h"

namespace mkbench {

namespace fs = std::filesystem;

namespace {

// A kind of picture that a script makes from report files.
struct Picture {
  const char* what;
  const char* script;
  const char* its;  // what a warning calls the script
};
constexpr Picture kPlots{"plots", "plot_report.py", "plotting"};
constexpr Picture kPage{kPageName, "report_page.py", "page's"};

// Returns the exit status of the script, -1 if it could not be run. `why_none` explains a status
// other than 0. `unverified`: why_unverified() of each report, or empty.
int draw(const Picture& picture, const std::vector<fs::path>& reports,
         const std::vector<std::string>& unverified, const fs::path& out, std::string& why_none) {
  PythonScript script{.name = picture.script, .arguments = {}};
  for (const fs::path& report : reports) script.arguments.push_back(report.string());
  script.arguments.insert(script.arguments.end(), {"--out", out.string()});
  for (const std::string& why : unverified) script.arguments.push_back("--unverified=" + why);
  std::string problem;
  const int status = run_script(script, problem);
  if (problem.empty()) problem = fmt::format("the {} script ended with {}", picture.its, status);
  why_none = fmt::format("no {}: {}", picture.what, problem);
  return status;
}

// Why figures of the report do not follow from the rest of it; empty if they do.
std::string why_unverified(const fs::path& report) {
  constexpr size_t kMost = 300;
  Differences differences;
  try {
    read_and_recompute(report, differences);
  } catch (const Error& error) {
    return one_line(error.what(), kMost);
  }
  if (differences.all().empty()) return {};
  const Difference& first = differences.all().front();
  return one_line(fmt::format("{}: {} of {} figures differ: {}: found {}, recomputed {}",
                              report.string(), differences.all().size(), differences.figures(),
                              first.path, first.found, first.recomputed),
                  kMost);
}

template <typename Suits>
bool any_engine(const Report& report, const Suits& suits) {
  return std::any_of(report.cases.begin(), report.cases.end(), [&](const CaseReport& c) {
    return std::any_of(c.engines.begin(), c.engines.end(), suits);
  });
}

}  // namespace

bool has_errors(const Report& report) {
  return any_engine(report, [](const EngineReport& e) {
    if (times_allowed(e.verdict) || !e.parity) return false;
    const std::optional<FailedStep>& step = e.parity->failed_step;
    return !e.parity->error_by_position.empty() || (step && !step->error_by_layer.empty());
  });
}

bool has_times(const Report& report) {
  return any_engine(report, [](const EngineReport& e) { return e.ms_per_tok.has_value(); });
}

std::vector<std::string> picture_report(const fs::path& folder, bool plots) {
  std::vector<std::string> warnings;
  const std::vector<fs::path> reports = {folder / "report.json"};
  std::string why_none;
  if (plots && draw(kPlots, reports, {}, folder / "plots", why_none) != 0)
    warnings.push_back(why_none);
  if (draw(kPage, reports, {}, folder / kPageName, why_none) != 0) warnings.push_back(why_none);
  return warnings;
}

namespace {

struct PlotSettings : CommandSettings {
  std::string out;
};

void require_plot_arguments(PlotSettings& settings) {
  if (settings.arguments.empty())
    bad_usage("mkbench plot: name at least one report.json or report folder");
}

int plot_command(const PlotSettings& settings, const Invocation&) {
  std::vector<fs::path> reports;
  std::vector<std::string> unverified;
  for (const std::string& argument : settings.arguments) {
    const fs::path path = report_file(argument);
    if (!fs::is_regular_file(path)) {
      throw Error(ErrorKind::kBadInput,
                  fmt::format("mkbench plot: {}: no such report", path.string()));
    }
    reports.push_back(path);
    unverified.push_back(why_unverified(path));
    if (!unverified.back().empty())
      print_stderr("mkbench: warning: NOT VERIFIED, do not quote: {}\n", unverified.back());
  }
  const fs::path out =
      settings.out.empty() ? reports.front().parent_path() / "plots" : fs::path(settings.out);
  std::string why_none;
  const int status = draw(kPlots, reports, unverified, out, why_none);
  if (status < 0) throw Error(ErrorKind::kRuntime, "mkbench plot: " + why_none);
  if (status == 0) {
    if (draw(kPage, reports, unverified, out / kPageName, why_none) != 0)
      print_stderr("mkbench: warning: {}\n", why_none);
    fmt::print("{}\n", out.string());
  }
  constexpr int kBadReport = 2, kNothingToPlot = 3;  // exit codes of the script
  if (status == kBadReport || status == kNothingToPlot) return exit_code(Verdict::kBadInput);
  return status == 0 ? 0 : 1;
}

}  // namespace

CommandRow plot_row() {
  return command_row<PlotSettings>(
      "plot", "draw plots of reports", "REPORT...",
      {flag("out DIR", "Folder for the plots [plots, beside the first report].",
            &PlotSettings::out)},
      require_plot_arguments, plot_command);
}

}  // namespace mkbench
