#include "harness/archive/baselines.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>

#include "harness/archive/builds.h"
#include "harness/archive/collector.h"
#include "harness/archive/recompute.h"
#include "harness/report/print_stderr.h"
#include "harness/report/render.h"
#include "harness/settings/values.h"
#include "references/base/error.h"
#include "references/base/json_strict.h"
#include "references/user_folders.h"

namespace mkbench {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostBytes = size_t{1} << 30;  // largest report.json, as in read_report()

// The names of the saved baselines, for a message.
std::string known_names(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    if (fs::exists(entry.path() / "report.json", error))
      names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names.empty() ? "there is none yet" : fmt::format("there are {}", fmt::join(names, ", "));
}

std::string called(const BaselineSettings& settings) { return "baseline " + settings.baseline; }

}  // namespace

fs::path baseline_file(const std::string& flag, const std::string& name) {
  const fs::path data = user_data_dir();
  if (data.empty()) {
    throw Error(ErrorKind::kRuntime,
                flag + ": no folder for baselines: neither XDG_DATA_HOME nor HOME is set");
  }
  return data / "baselines" / name / "report.json";
}

RunBaselines::RunBaselines(const BaselineSettings& settings, const std::vector<std::string>& builds,
                           bool on_stdout)
    : settings_(settings), builds_(builds), on_stdout_(on_stdout) {
  if (!settings.save_baseline.empty()) baseline_file("--save-baseline", settings.save_baseline);
  if (settings.baseline.empty()) return;
  const fs::path file = baseline_file("--baseline", settings.baseline);
  if (!fs::exists(file)) {
    bad_usage(fmt::format("--baseline {}: found nothing in {}; {}", settings.baseline,
                          file.parent_path().string(),
                          known_names(file.parent_path().parent_path())));
  }
  base_ = read_sound_report(file, "--baseline " + settings.baseline);
}

void RunBaselines::check_plan(const Report& known, const nlohmann::json& options,
                              const std::vector<CaseJob>& jobs) const {
  if (!builds_.empty()) allowed_regress(settings_, recorded_margin(known.calibration));
  if (!base_) return;
  Report planned;
  planned.meta = {{"options", options}};
  planned.environment = known.environment;
  planned.calibration = known.calibration;
  for (const CaseJob& job : jobs) {
    CaseCollector collector(job);
    for (EngineReport& e : collector.report().engines) e.verdict = Verdict::kPass;
    planned.cases.push_back(collector.report());
  }
  refuse_differences(called(settings_), "this run", version_differences(*base_, planned));
  allowed_regress(settings_, version_margin(*base_, planned));
}

std::optional<VersionGate> RunBaselines::gate(const Report& report, const fs::path& folder) const {
  if (!base_ && builds_.empty()) return std::nullopt;
  const std::string head = (folder / "report.json").string();
  const VersionGate result = base_
                                 ? gate_versions(*base_, called(settings_), report, head, settings_)
                                 : gate_builds(report, builds_[0], builds_[1], settings_);
  print(result);
  write_text(folder / "gate.md", render_gate(result));
  write_text(folder / "gate.json", dump_readable(gate_json(result)) + "\n");
  write_text(folder / "gate-junit.xml", render_suites(gate_suites(result)));
  return result;
}

// Standard output holds one document, to which the result can be added only if it is Markdown.
void RunBaselines::print(const VersionGate& gate) const {
  if (!on_stdout_) return print_stderr("\n{}", render_gate(gate));
  fmt::print("\n{}", render_gate(gate));
  std::fflush(stdout);
}

void RunBaselines::save(const fs::path& folder, const Say& say) const {
  const fs::path file = baseline_file("--save-baseline", settings_.save_baseline);
  const bool replaces = fs::exists(file);
  std::error_code error;
  fs::create_directories(file.parent_path(), error);
  if (error) {
    throw Error(ErrorKind::kRuntime, fmt::format("--save-baseline: cannot make {}: {}",
                                                 file.parent_path().string(), error.message()));
  }
  write_text(file, read_small_file(folder / "report.json", kMostBytes));
  say(fmt::format("baseline {}: {}: {}", settings_.save_baseline, replaces ? "replaced" : "kept",
                  file.string()));
}

int RunBaselines::conclude(const Report& report, const fs::path& folder, int status,
                           const Say& say) const {
  if (report.interrupted) return status;
  std::vector<Verdict> verdicts = {report.verdict};
  std::string unfit = exit_code(report.verdict) != 0
                          ? fmt::format("the run is {}", verdict_name(report.verdict))
                          : "";
  try {
    if (const std::optional<VersionGate> found = gate(report, folder)) {
      if (found->exit_code != 0) verdicts.push_back(found->verdict);
      if (found->verdict != Verdict::kPass)
        unfit = fmt::format("the gate is {}", verdict_name(found->verdict));
      if (found->verdict != Verdict::kPass && !found->reasons.empty())
        say(fmt::format("gate: {} (exit code {}): {}", verdict_name(found->verdict),
                        found->exit_code, found->reasons.front()));
    }
    if (!settings_.save_baseline.empty()) {
      if (unfit.empty()) {
        save(folder, say);
      } else {
        say(fmt::format("baseline {}: not kept: {}", settings_.save_baseline, unfit));
      }
    }
  } catch (const Error& error) {
    say(std::string("error: ") + error.what());
    verdicts.push_back(verdict_of(error.kind()));
  }
  const int worst_code = exit_code(worst(verdicts));
  return worst_code != 0 ? worst_code : status;
}

}  // namespace mkbench
