// A case of `mkbench selftest --timing`: libraries of tests/plugins on the tiny model, planned and
// run as by `mkbench run`.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "harness/cli/plan_settings.h"
#include "harness/flow/job.h"
#include "harness/hosts/machine.h"
#include "harness/report/report.h"

namespace mkbench {

struct SelftestSettings : CardSettings {
  bool faults = false;              // plant the faults of the fault table
  bool timing = false;              // run the plugin engines with timing faults
  bool calibrate = false;           // --timing: run the long form and store the calibration
  std::string libraries;            // folder of these plugins; empty: tests/plugins of this build
  std::vector<std::string> rows;    // ids of faults to plant or timing faults to run; empty: all
  std::vector<std::string> models;  // --faults: synthetic:SHAPE; empty: the whole fault table
};

class SelftestCases {
 public:
  SelftestCases(const SelftestSettings& settings, const Invocation& invocation,
                const MachineProbe& probe, bool cuda)
      : settings_(settings), invocation_(invocation), probe_(probe), cuda_(cuda) {}

  bool cuda() const { return cuda_; }
  const SelftestSettings& settings() const { return settings_; }
  const Invocation& invocation() const { return invocation_; }
  const MachineProbe& probe() const { return probe_; }

  // The path of a library in the folder <folder>-cpu or <folder>-cuda. Throws Error(kBadInput) if
  // the library is missing, naming the target that builds it.
  std::string path_of(std::string_view folder, std::string_view library) const;

  struct Planned {
    CaseJob job;
    double timeout_s = 0;
  };
  // A case of these engines, each in `processes` processes; `arguments`: more for `mkbench run`.
  Planned plan(const std::vector<std::string>& engines, int processes,
               const std::vector<std::string>& arguments) const;

  // Runs a case to its aggregates. Reasons of the case itself go to stderr. Throws Interrupted.
  CaseReport run(const Planned& planned, const SpeedMargin& margin = {}) const;

 private:
  const SelftestSettings& settings_;
  const Invocation& invocation_;
  const MachineProbe& probe_;
  const bool cuda_;
};

// The engine of a case by the name that the plan gave it. Throws Error(kRuntime) if there is none.
const EngineReport& engine_of(const CaseReport& report, const std::string& flow_name);

}  // namespace mkbench
