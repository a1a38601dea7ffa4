// Turns settings into jobs: which device, which engines, which cases.
#pragma once

#include <string>
#include <vector>

#include "harness/cli/plan_settings.h"
#include "harness/flow/job.h"
#include "harness/hosts/machine.h"

namespace mkbench {

// The jobs of a run, and what is printed about them before they start.
struct RunPlan {
  bool cuda = false;
  std::string device_text;  // "cpu" or "cuda:0 NVIDIA H200"
  std::string banner;       // why --device auto fell back to the CPU; else empty
  std::vector<std::string> warnings;
  std::vector<std::string> notes;  // lines for stderr that are not warnings
  std::vector<CaseJob> jobs;
};

// The models of a run: those that --model names, else the default of the device (GPU or CPU).
std::vector<std::string> models_of(const PlanSettings& settings, bool cuda);

// Plans a run for the machine that `probe` describes. Throws Error(kUnsupportedDevice), which
// suggests --device cpu, if cuda was requested and is missing; Error(kBadInput) for models that do
// not exist and for contexts longer than a model's config allows.
RunPlan plan_run(const PlanSettings& settings, const MachineProbe& probe);

// Prints warnings, notes and banner to stderr.
void tell_plan(const RunPlan& plan);

}  // namespace mkbench
