// Facts about a failure, from what was judged: at how many KV rows it begins, which ids it concerns,
// how the logits differ from the truth's. One line each, printed only if it is measured and chance
// is no explanation; facts.cpp gives each threshold.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "harness/judge/localise.h"
#include "harness/judge/ratios.h"

namespace mkbench {

// Result of one teacher-forced step.
struct ForcedStep {
  int32_t id = -1;          // emitted
  int32_t argmax = -1;      // lowest index of the largest of the engine's own logits
  bool is_largest = false;  // the emitted id's logit is the largest, too
  int64_t non_finite = 0;
  int first_non_finite = -1;         // index of the first logit that is not finite
  std::optional<StepError> error{};  // if all logits are finite and the truth has a sketch
};

// Fills in what the logits of a step say; its id is known.
void scan_logits(const float* logits, int vocab, ForcedStep& step);

struct SeenStep {
  const ReferencePrompt* prompt = nullptr;
  int step = 0;
  ForcedStep forced{};
  bool wrong = false;  // the id is neither the truth's nor a near tie
};

// What the failing steps have in common. A step fails by its id, by NaN or Inf, or by a logit error
// over `error_limit` times the larger of the baseline's error there and the median of the baseline's
// errors (0: errors are not judged). `takes_forced`: steps after a prompt's first are decoded behind
// others, and not each behind a prefill of its own.
std::vector<std::string> facts_of_steps(const std::vector<SeenStep>& steps, double error_limit,
                                        bool takes_forced);

// How the engine's logits of one step differ from the truth's.
std::vector<std::string> facts_of_logits(const LastStep& step);

}  // namespace mkbench
