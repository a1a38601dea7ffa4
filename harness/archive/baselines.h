// What a run is held against when it has ended: a report that a user keeps under a name, or, of two
// builds that it has timed, the first one.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "harness/archive/versions.h"
#include "harness/flow/job.h"

namespace mkbench {

// <user_data_dir()>/baselines/NAME/report.json. Throws Error(kRuntime), whose message begins with
// `flag`, where neither XDG_DATA_HOME nor HOME is set.
std::filesystem::path baseline_file(const std::string& flag, const std::string& name);

// What a run is held against, and under which name its report is kept.
struct BaselineSettings : GateLimits {
  std::string baseline, save_baseline;  // names; empty: none
};

// --baseline and --save-baseline of a run, and the builds of `mkbench compare`.
class RunBaselines {
 public:
  // Reads the report of --baseline. `builds`: the two that are compared, or none; `on_stdout`: whether
  // the result is printed there, not on stderr. Throws Error(kBadInput) where there is no baseline of
  // that name, and what baseline_file() and read_sound_report() throw.
  RunBaselines(const BaselineSettings& settings, const std::vector<std::string>& builds,
               bool on_stdout);

  // Throws Error(kBadInput) where such a run could not be compared with the baseline, or where
  // --max-regress is below the margin; not where the run compares nothing.
  // `known` has environment and calibration of the run, `options` is its meta.options.
  void check_plan(const Report& known, const nlohmann::json& options,
                  const std::vector<CaseJob>& jobs) const;

  // Ends a run whose files are written: compares it, prints the result and writes it into the folder
  // (gate.json, gate.md, gate-junit.xml), and keeps the report where both passed. `status` is the
  // run's exit code; returns the worst one. `say` prints a line for a person.
  using Say = std::function<void(const std::string&)>;
  int conclude(const Report& report, const std::filesystem::path& folder, int status,
               const Say& say) const;

 private:
  // Empty where the run compares nothing.
  std::optional<VersionGate> gate(const Report& report, const std::filesystem::path& folder) const;
  void print(const VersionGate& gate) const;
  void save(const std::filesystem::path& folder, const Say& say) const;

  const BaselineSettings settings_;
  const std::vector<std::string> builds_;
  const bool on_stdout_;
  std::optional<Report> base_;
};

}  // namespace mkbench
