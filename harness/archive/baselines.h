// What a finished run is compared with: a report that the user saved under a name or, in
// `mkbench compare`, the first of the two builds.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "harness/archive/versions.h"
#include "harness/flow/job.h"

namespace mkbench {

// <user_data_dir()>/baselines/NAME/report.json. If neither XDG_DATA_HOME nor HOME is set, throws
// Error(kRuntime) with a message that begins with `flag`.
std::filesystem::path baseline_file(const std::string& flag, const std::string& name);

// The baseline to compare a run with, and the name under which to save its report.
struct BaselineSettings : GateLimits {
  std::string baseline, save_baseline;  // names; empty: none
};

// --baseline and --save-baseline of a run, and the builds of `mkbench compare`.
class RunBaselines {
 public:
  // Reads the report of --baseline. `builds`: the two builds to compare, or empty; `on_stdout`:
  // print the result on stdout, not on stderr. Throws Error(kBadInput) if there is no baseline of
  // that name, and what baseline_file() and read_sound_report() throw.
  RunBaselines(const BaselineSettings& settings, const std::vector<std::string>& builds,
               bool on_stdout);

  // Throws Error(kBadInput) if the planned run could not be compared with the baseline, or if
  // --max-regress is below the margin; does nothing if the run compares nothing.
  // `known` holds the run's environment and calibration, `options` its meta.options.
  void check_plan(const Report& known, const nlohmann::json& options,
                  const std::vector<CaseJob>& jobs) const;

  // Ends a run whose files are written: compares it, prints the result and writes it into the
  // folder (gate.json, gate.md, gate-junit.xml), and saves the report if run and comparison passed.
  // `status`: exit code of the run; returns the worst exit code. `say` prints a line for a person.
  using Say = std::function<void(const std::string&)>;
  int conclude(const Report& report, const std::filesystem::path& folder, int status,
               const Say& say) const;

 private:
  // nullopt if the run compares nothing.
  std::optional<VersionGate> gate(const Report& report, const std::filesystem::path& folder) const;
  void print(const VersionGate& gate) const;
  void save(const std::filesystem::path& folder, const Say& say) const;

  const BaselineSettings settings_;
  const std::vector<std::string> builds_;
  const bool on_stdout_;
  std::optional<Report> base_;
};

}  // namespace mkbench
