#include "harness/cli/commands/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "harness/archive/recompute.h"
#include "harness/archive/versions.h"
#include "harness/cli/command_line.h"
#include "harness/cli/progress.h"
#include "harness/cli/python_script.h"
#include "harness/report/print_stderr.h"
#include "harness/report/render.h"
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
  const char* its;    // what a warning calls the script
  const char* place;  // in a report's folder
};
constexpr Picture kPlots{"plots", "plot_report.py", "plotting", "plots"};
constexpr Picture kPage{kPageName, "report_page.py", "page's", kPageName};

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

// Why figures of a report do not follow from the rest of it; empty if they do.
std::string why_unverified(const fs::path& file, const Differences& differences) {
  if (differences.all().empty()) return {};
  const Difference& first = differences.all().front();
  return one_line(fmt::format("{}: {} of {} figures differ: {}: found {}, recomputed {}",
                              file.string(), differences.all().size(), differences.figures(),
                              first.path, first.found, first.recomputed),
                  300);
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
  if (plots && draw(kPlots, reports, {}, folder / kPlots.place, why_none) != 0)
    warnings.push_back(why_none);
  if (draw(kPage, reports, {}, folder / kPage.place, why_none) != 0) warnings.push_back(why_none);
  return warnings;
}

namespace {

struct ReportSettings : CommandSettings {
  std::string format, out;
};

bool is_picture(const std::string& format) { return format == "html" || format == "svg"; }

void require_report_arguments(ReportSettings& settings) {
  if (settings.arguments.empty())
    bad_usage("mkbench report: name at least one report.json or report folder");
  if (settings.arguments.size() > 1 && is_picture(settings.format) && settings.out.empty()) {
    bad_usage(fmt::format("mkbench report: {} of {} reports: name {} by --out", settings.format,
                          settings.arguments.size(),
                          settings.format == "svg" ? "a folder" : "a file"));
  }
}

// The reports of a command, in the order of its arguments.
struct Sources {
  std::vector<fs::path> files;
  std::vector<Report> reports;
  std::vector<std::string> unverified;  // why_unverified()
};

Sources read_sources(const std::vector<std::string>& arguments) {
  Sources all;
  for (const std::string& argument : arguments) {
    const fs::path file = report_file(argument);
    Differences differences;
    all.reports.push_back(read_and_recompute(file, differences));
    all.files.push_back(file);
    all.unverified.push_back(why_unverified(file, differences));
    if (!all.unverified.back().empty())
      print_stderr("mkbench: warning: NOT VERIFIED, do not quote: {}\n", all.unverified.back());
  }
  return all;
}

int draw_reports(const ReportSettings& settings, const Sources& sources) {
  const Picture& picture = settings.format == "svg" ? kPlots : kPage;
  const fs::path beside = sources.files.front().parent_path();
  const fs::path out = settings.out.empty() ? beside / picture.place : fs::path(settings.out);
  std::string why_none;
  const int status = draw(picture, sources.files, sources.unverified, out, why_none);
  if (status < 0) throw Error(ErrorKind::kRuntime, "mkbench report: " + why_none);
  if (status == 0) fmt::print("{}\n", out.string());
  constexpr int kBadReport = 2, kNothingToPlot = 3;  // exit codes of the script
  if (status == kBadReport || status == kNothingToPlot) return exit_code(Verdict::kBadInput);
  return status == 0 ? 0 : 1;
}

// A program would read the figures without their warning, so of figures that do not verify only md is
// made, below the warning.
int print_reports(const ReportSettings& settings, const Sources& sources) {
  std::string text;
  for (const std::string& why : sources.unverified)
    if (!why.empty()) text += fmt::format("> **NOT VERIFIED, do not quote:** {}\n\n", why);
  if (!text.empty() && settings.format != "md") {
    throw Error(ErrorKind::kIntegrity,
                fmt::format("mkbench report: -o {} has no place for that warning: -o md and -o "
                            "html have one",
                            settings.format));
  }
  const bool utf8 = !settings.out.empty() || locale_is_utf8(process_environment());
  text += render(sources.reports, settings.format, {.utf8 = utf8});
  // A comparison of builds or with a baseline has its verdicts in a file of their own.
  for (const fs::path& file : sources.files) {
    const fs::path gate = file.parent_path() / "gate.json";
    if (settings.format == "annotations" && fs::exists(gate))
      text += render_annotations(gate_suites(read_gate(gate)));
  }
  if (settings.out.empty())
    fmt::print("{}", text);
  else
    write_text(settings.out, text);
  return 0;
}

int report_command(const ReportSettings& settings, const Invocation&) {
  const Sources sources = read_sources(settings.arguments);
  return is_picture(settings.format) ? draw_reports(settings, sources)
                                     : print_reports(settings, sources);
}

}  // namespace

CommandRow report_row() {
  std::vector<std::string> formats = {"html", "svg"};
  formats.insert(formats.end(), kTextFormats.begin(), kTextFormats.end());
  return command_row<ReportSettings>(
      "report", "show reports again: page, pictures, text, or another program's format",
      "REPORT...",
      {flag("output,o html|svg|md|json|jsonl|csv|sql|benchmark|openmetrics|annotations=html",
            "What to make: the page, a folder of pictures, or text.", &ReportSettings::format,
            one_word_of(formats)),
       flag("out PATH",
            "File, or folder of pictures [report.html or plots beside the report; text goes to "
            "stdout].",
            &ReportSettings::out)},
      require_report_arguments, report_command);
}

}  // namespace mkbench
