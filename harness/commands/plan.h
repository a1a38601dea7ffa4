// From options to jobs: which device, which engines, which cases.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "harness/options.h"
#include "harness/worker/job.h"

namespace mkbench {

// What a run is going to do.
struct RunPlan {
  bool cuda = false;
  std::string device_text;  // "cpu" or "cuda:0 NVIDIA H200"
  std::string banner;       // why auto fell back to the CPU; else empty
  std::vector<std::string> warnings;
  std::vector<CaseJob> jobs;
  std::vector<std::string>
      engine_names;  // as asked for, baselines first: one an engine of each job
};

// Plans a run for the machine that `probe` describes (machine.h), or for a CPU when the probe
// failed: then it is empty and `probe_problem` says why. Throws Error(kUnsupportedDevice) naming
// --device cpu when cuda was asked for and is not there, Error(kBadInput) for models that do not
// exist and for contexts longer than a model's config allows.
RunPlan plan_run(const Options& options, const nlohmann::json& probe,
                 const std::string& probe_problem);

}  // namespace mkbench
