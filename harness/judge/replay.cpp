#include "harness/judge/replay.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "harness/judge/findings.h"
#include "harness/judge/ratios.h"
#include "references/oracle.h"

namespace mkbench {
namespace {

constexpr size_t kShownIds = 5;

std::vector<ScoredId> best_ids(const std::vector<float>& logits,
                               const std::function<std::string(int32_t)>& text_of) {
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const size_t shown = std::min(kShownIds, order.size());
  // NaN counts as the smallest: a comparison with it would be no order.
  const auto value = [&](int32_t id) {
    const float z = logits[static_cast<size_t>(id)];
    return std::isnan(z) ? -INFINITY : z;
  };
  std::partial_sort(
      order.begin(), order.begin() + static_cast<std::ptrdiff_t>(shown), order.end(),
      [&](int32_t a, int32_t b) { return value(a) != value(b) ? value(a) > value(b) : a < b; });
  std::vector<ScoredId> best;
  for (size_t i = 0; i < shown; ++i) {
    const int32_t id = order[i];
    best.push_back({id, logits[static_cast<size_t>(id)], text_of ? text_of(id) : ""});
  }
  return best;
}

// 2-norm of the difference of two rows of logits, each less its mean.
double centred_distance(const std::vector<float>& x, const std::vector<float>& y) {
  const int vocab = static_cast<int>(x.size());
  const double shift = mean_of(x.data(), vocab) - mean_of(y.data(), vocab);
  double squared = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double difference = double{x[i]} - double{y[i]} - shift;
    squared += difference * difference;
  }
  return std::sqrt(squared);
}

StepVerdict match_of(const FailedStep& failed, const std::vector<float>& truth, bool logits_bf16) {
  if (failed.found == failed.expected) return StepVerdict::kExact;
  if (failed.found < 0 || static_cast<size_t>(failed.found) >= truth.size())
    return StepVerdict::kWrong;
  const double gap = double{truth[static_cast<size_t>(failed.expected)]} -
                     double{truth[static_cast<size_t>(failed.found)]};
  const double tau = tau_of(truth, failed.pairwise_d, logits_bf16);
  return gap <= tau ? StepVerdict::kTie : StepVerdict::kWrong;
}

}  // namespace

FailedStep replay_step(const LocaliseEngines& engines, const ReferencePrompt& prompt, int step,
                       const ReplayOptions& options) {
  LastStep last;
  FailedStep failed;
  failed.localised = localise(engines, options.layers, options.vocab, prompt, step, &last);
  failed.prompt = prompt.name;
  failed.position = prompt.steps[static_cast<size_t>(step)].position;
  failed.prompt_ids = prompt.ids;
  for (int t = 0; t < step; ++t)
    failed.forced_ids.push_back(prompt.steps[static_cast<size_t>(t)].token);
  failed.expected = argmax_lowest(last.truth);
  failed.found = last.id;
  failed.expected_top = best_ids(last.truth, options.text_of);
  if (failed.expected_top.size() > 1)
    failed.margin = failed.expected_top[0].logit - failed.expected_top[1].logit;
  failed.pairwise_d = options.pairwise_d;
  failed.verdict = match_of(failed, last.truth, options.logits_bf16);
  failed.baseline_error_norm =
      std::max(centred_distance(last.baseline, last.truth),
               prompt.steps[static_cast<size_t>(step)].baseline_error_norm);
  if (!last.candidate.empty()) {
    failed.found_top = best_ids(last.candidate, options.text_of);
    failed.error_norm = centred_distance(last.candidate, last.truth);
  }
  return failed;
}

Verdict verdict_of(const FailedStep& step, double limit) {
  if (step.verdict == StepVerdict::kWrong) return Verdict::kFailToken;
  // NaN is out of every band.
  if (limit > 0 && !(step.error_norm <= limit * step.baseline_error_norm))
    return Verdict::kFailFidelity;
  return Verdict::kPass;
}

ReferencePrompt prompt_of(const FailedStep& step) {
  ReferencePrompt prompt;
  prompt.name = step.prompt;
  prompt.ids = step.prompt_ids;
  const int first = static_cast<int>(step.prompt_ids.size()) - 1;
  for (const int32_t id : step.forced_ids) {
    prompt.steps.emplace_back();
    prompt.steps.back().token = id;
  }
  prompt.steps.emplace_back();
  for (size_t t = 0; t < prompt.steps.size(); ++t)
    prompt.steps[t].position = first + static_cast<int>(t);
  return prompt;
}

}  // namespace mkbench
