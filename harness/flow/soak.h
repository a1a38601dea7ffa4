// `mkbench soak`: one engine runs for long, and what must hold in each step is counted.
#pragma once

#include <functional>
#include <optional>

#include "harness/flow/job.h"
#include "harness/flow/services.h"
#include "harness/flow/soak_steps.h"
#include "harness/report/soak_report.h"

namespace mkbench {

struct SoakPlan {
  CaseJob job{};
  CaseEngine engine{};
  std::string command{};               // repeats a step once --step N is appended
  std::optional<int64_t> only_step{};  // repeats this step alone
  bool all_minutes = false;            // goes on after all wanted numbers are reached
};

// Failures after which a soak ends: more of them say nothing new.
inline constexpr size_t kMostSoakFailures = 20;

// The ids that must follow a prompt, as far as they are known.
struct SoakTruth {
  std::string source;  // as SoakReport::truth; empty where nothing is known
  int least_rows = 0;
  // Fills `prompt` with the prompt of a step, and returns the ids behind it: as many as the step decodes, fewer
  // or none where they are not known. May change the step's rows and number of further launches.
  std::function<std::vector<int32_t>(SoakStep& step, std::vector<int32_t>& prompt)> draw;
};
// The closed form for analytic weights; else the strict prompts of `references`, in two of eight steps.
SoakTruth soak_truth(const ModelWeights& weights, const std::vector<GreedyReference>& references,
                     int context);

// Goes on from the state in `report`, step by step, until the numbers that it asks for are reached, its minutes
// are over, the engine fails too often or does not come back, or services.stop(). `keep` is called now and then
// with the state as it is, and at the end. The report is concluded; what opening the engine throws passes through.
void run_soak(const SoakPlan& plan, const CaseServices& services, const ModelWeights& weights,
              const SoakTruth& truth, SoakReport& report,
              const std::function<void(const SoakReport&)>& keep);

}  // namespace mkbench
