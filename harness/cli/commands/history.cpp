#include "harness/cli/commands/history.h"

#include <fmt/format.h>

#include <algorithm>

#include "harness/archive/clock_file.h"
#include "harness/archive/recompute.h"
#include "harness/cli/command_line.h"
#include "harness/cli/python_script.h"
#include "harness/report/render.h"
#include "harness/report/verdict.h"
#include "references/base/error.h"
#include "references/base/sha256.h"
#include "references/user_folders.h"

namespace mkbench {
namespace {

using nlohmann::json;

constexpr int kBadHistory = 2;  // exit code of the script

std::string commit_of(const Report& report) {
  constexpr size_t kShown = 12;
  const std::string commit = json_text(report.meta, {"git_sha"}).substr(0, kShown);
  const bool dirty = report.meta.value("dirty", json()) == true;
  return commit.empty() ? "no commit" : commit + (dirty ? "+" : "");
}

// Throws Error(kRuntime) if neither XDG_DATA_HOME nor HOME is set.
std::filesystem::path history_file() {
  const std::filesystem::path data = user_data_dir();
  if (data.empty()) {
    throw Error(ErrorKind::kRuntime,
                "history: no folder for it: neither XDG_DATA_HOME nor HOME is set");
  }
  return data / "history.sqlite";
}

// Adds a report's results, unless the history has them. `file`: its report.json; `label`: its
// name there (empty: mkbench's commit); `on_stdout`: the script's line goes to stdout, not stderr.
// Throws Error(kBadInput) for a partial report, and if the history cannot be used.
void add_to_history(const Report& report, const std::filesystem::path& file,
                    const std::string& label, bool on_stdout) {
  if (report.interrupted) {
    throw Error(ErrorKind::kBadInput,
                fmt::format("history: {}: verdict.interrupted: found true, wanted a finished run",
                            file.string()));
  }
  const ClockMachine machine = clock_machine(report.environment, !is_cpu_report(report));
  const json run = {{"report_sha256", sha256_file(file)},
                    {"started", json_text(report.meta, {"started"})},
                    {"git_sha", json_text(report.meta, {"git_sha"})},
                    {"label", label.empty() ? commit_of(report) : label},
                    {"device", machine.device},
                    {"uuid", machine.uuid},
                    {"driver", machine.driver},
                    {"margin", recorded_margin(report.calibration).value()},
                    {"verdict", std::string(verdict_name(report.verdict))}};
  const PythonScript script{.name = "history.py",
                            .arguments = {history_file().string(), "add", file.string()},
                            .input = run.dump(-1, ' ', false, json::error_handler_t::replace) +
                                     "\n" + render_jsonl({&report, 1}),
                            .prints_result = on_stdout};
  std::string problem;
  const int status = run_script(script, problem);
  if (status < 0) throw Error(ErrorKind::kRuntime, "history: " + problem);
  if (status > 0) {
    throw Error(
        status == kBadHistory ? ErrorKind::kBadInput : ErrorKind::kRuntime,
        fmt::format("history: {0} was not added; once that is mended: mkbench history add {0}",
                    file.string()));
  }
}

constexpr char kAdd[] = "add";

struct HistorySettings : CommandSettings {
  bool plot = false;  // also draw the history
  std::string label;  // add: name of the version
  std::string out;
};

std::vector<Flag<HistorySettings>> history_flags() {
  using H = HistorySettings;
  return {flag("plot",
               "Draw the history, too: history.html and pictures. Needs a Python with vl-convert.",
               &H::plot),
          flag("label TEXT", "With add: name of the version [its commit].", &H::label),
          flag("out DIR", "Folder of the page and the pictures [mkbench-history].", &H::out)};
}

int show_history(const HistorySettings& settings) {
  PythonScript script{.name = "history.py",
                      .arguments = {history_file().string(), "show"},
                      .input = {},
                      .prints_result = true};
  if (settings.plot) {
    const std::string out = settings.out.empty() ? "mkbench-history" : settings.out;
    script.arguments.insert(script.arguments.end(), {"--plot", out});
  }
  std::string problem;
  const int status = run_script(script, problem);
  if (status < 0) throw Error(ErrorKind::kRuntime, "history: " + problem);
  constexpr int kNothingToPlot = 3;
  if (status == kBadHistory || status == kNothingToPlot) return exit_code(Verdict::kBadInput);
  return status;
}

void require_history_arguments(HistorySettings& settings) {
  const std::vector<std::string>& words = settings.arguments;
  if (!words.empty() && words.front() != kAdd)
    bad_usage(fmt::format("history: found '{}', wanted no argument, or 'add' and reports",
                          words.front()));
  if (words.size() == 1) bad_usage("history add: found no report, wanted at least one");
  if (words.empty() && was_typed(settings, "label")) bad_usage("--label goes with history add");
  if (!words.empty() && was_typed(settings, "plot"))
    bad_usage("--plot goes with history alone, not with history add");
}

int history_command(const HistorySettings& settings, const Invocation&) {
  if (settings.arguments.empty()) return show_history(settings);
  for (size_t i = 1; i < settings.arguments.size(); ++i) {
    const std::filesystem::path file = report_file(settings.arguments[i]);
    add_to_history(read_sound_report(file, "history add"), file, settings.label, true);
  }
  return 0;
}

}  // namespace

int end_in_history(const Report& report, const std::filesystem::path& file, int status,
                   const std::function<void(const std::string&)>& say) {
  try {
    add_to_history(report, file, "", false);
    return status;
  } catch (const Error& error) {
    say(std::string("error: ") + error.what());
    return status != 0 ? status : exit_code(verdict_of(error.kind()));
  }
}

CommandRow history_row() {
  return command_row<HistorySettings>(
      "history", "results of runs that were added, by card and commit", "[add REPORT...]",
      history_flags(), require_history_arguments, history_command);
}

}  // namespace mkbench
