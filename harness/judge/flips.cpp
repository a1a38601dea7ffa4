#include "harness/judge/flips.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace mkbench {
namespace {

double median_pairwise(const GreedyReference& reference) {
  std::vector<double> all;
  for (const ReferencePrompt& prompt : reference.prompts) {
    for (const ReferenceStep& step : prompt.steps) all.push_back(step.baseline_pairwise);
  }
  if (all.empty()) return 0;
  const auto middle = all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2);
  std::nth_element(all.begin(), middle, all.end());
  return *middle;
}

// The probability that a normal error with this standard deviation exceeds the margin.
double flip_chance(double margin, double deviation) {
  if (deviation <= 0) return margin > 0 ? 0 : 0.5;
  return std::erfc(margin / deviation / std::sqrt(2.0)) / 2;
}

}  // namespace

int most_flips(const GreedyReference& reference, bool logits_bf16) {
  const double median = median_pairwise(reference);
  // Entry k: the probability of k flips among the steps so far.
  std::vector<double> chance = {1};
  for (const ReferencePrompt& prompt : reference.prompts) {
    for (const ReferenceStep& step : prompt.steps) {
      if (step.decided) continue;
      const double half = std::max(step.baseline_pairwise, median) / 2;
      // Deviation of the sum of two rounding errors, each uniform over one bf16 step.
      const double rounding = logits_bf16 ? bf16_step(step.max_abs) / std::sqrt(6.0) : 0;
      const double p = flip_chance(step.margin, std::hypot(half, rounding));
      chance.push_back(0);
      for (size_t k = chance.size() - 1; k > 0; --k)
        chance[k] = chance[k] * (1 - p) + chance[k - 1] * p;
      chance[0] *= 1 - p;
    }
  }
  double above = 0;
  size_t most = chance.size() - 1;
  while (most > 0 && above + chance[most] <= kFlipAlpha) above += chance[most--];
  return static_cast<int>(most);
}

}  // namespace mkbench
