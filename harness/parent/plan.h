// From options to jobs: which device, which engines, which cases.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "harness/parent/options.h"
#include "harness/wire/job.h"

namespace mkbench {

// What a run is going to do.
struct RunPlan {
  bool cuda = false;
  std::string device_text;  // "cpu" or "cuda:0 NVIDIA H200"
  std::string banner;       // why auto fell back to the CPU; else empty
  std::vector<std::string> warnings;
  std::vector<std::string> notes;  // worth a line on stderr, nothing is amiss
  std::vector<CaseJob> jobs;
};

// The models of a run on a GPU, or on a CPU: those asked for, else the device's default.
std::vector<std::string> models_of(const Options& options, bool cuda);

// Plans a run for the machine that `probe` describes, or for a CPU when the probe failed: then it is
// empty and `probe_problem` says why. Throws Error(kUnsupportedDevice) naming
// --device cpu when cuda was asked for and is not there, Error(kBadInput) for models that do not
// exist and for contexts longer than a model's config allows.
RunPlan plan_run(const Options& options, const std::optional<ProbeAnswer>& probe,
                 const std::string& probe_problem);

}  // namespace mkbench
