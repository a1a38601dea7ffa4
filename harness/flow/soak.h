// `mkbench soak`: runs one engine for long and counts the checks that each step passes or fails.
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
  std::string command{};               // command line that repeats step N once --step N is appended
  std::optional<int64_t> only_step{};  // repeats this step alone
  bool all_minutes = false;            // goes on after all wanted numbers are reached
};

// Failures after which a soak ends: more of them say nothing new.
inline constexpr size_t kMostSoakFailures = 20;

// The ids that must follow a prompt, as far as they are known.
struct SoakTruth {
  std::string source;  // as SoakReport::truth; empty if no ids are known
  int least_rows = 0;
  // Fills `prompt` with the prompt of a step and returns the ids that must follow it, as far as
  // they are known. May change the step's rows, tokens and number of further launches.
  std::function<std::vector<int32_t>(SoakStep& step, std::vector<int32_t>& prompt)> draw;
};
// The closed form for analytic weights; else the strict prompts of `references`, for 2 of 8 steps.
SoakTruth soak_truth(const ModelWeights& weights, const std::vector<GreedyReference>& references,
                     int context);

// Continues from the state in `report` until its numbers are reached, its minutes are over, the
// engine fails too often, a call fails, or services.stop(). `keep` gets the report now and then,
// and the concluded one at the end. Throws what opening the engine throws.
void run_soak(const SoakPlan& plan, const CaseServices& services, const ModelWeights& weights,
              const SoakTruth& truth, SoakReport& report,
              const std::function<void(const SoakReport&)>& keep);

}  // namespace mkbench
