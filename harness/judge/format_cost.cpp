#include "harness/judge/format_cost.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "harness/judge/ratios.h"
#include "references/base/error.h"

namespace mkbench {

void CostSums::add(std::span<const float> original, std::span<const float> quantised,
                   int32_t next) {
  if (original.size() != quantised.size())
    throw Error(
        ErrorKind::kBadInput,
        fmt::format("cost of the format: the original model has {} logits, the quantised one "
                    "{}: wanted two of one vocabulary",
                    original.size(), quantised.size()));
  const int vocab = static_cast<int>(original.size());
  const double of_original = logsumexp_of(original.data(), vocab);
  const double of_quantised = logsumexp_of(quantised.data(), vocab);
  double kl = 0;
  for (size_t i = 0; i < original.size(); ++i) {
    const double log_p = original[i] - of_original;
    kl += std::exp(log_p) * (log_p - (quantised[i] - of_quantised));
  }
  kl = std::max(kl, 0.0);  // rounding of the sum
  const auto top = [](std::span<const float> row) {
    return std::max_element(row.begin(), row.end()) - row.begin();
  };
  ++sums_.steps;
  sums_.kl += kl;
  sums_.largest_kl = std::max(sums_.largest_kl, kl);
  sums_.same_top += top(original) == top(quantised) ? 1 : 0;
  if (next < 0) return;
  ++sums_.text_steps;
  original_loss_ += of_original - original[static_cast<size_t>(next)];
  loss_ += of_quantised - quantised[static_cast<size_t>(next)];
}

FormatCost CostSums::cost() const {
  FormatCost cost = sums_;
  if (cost.steps == 0) return cost;
  cost.kl /= static_cast<double>(cost.steps);
  cost.same_top /= static_cast<double>(cost.steps);
  const auto perplexity = [&](double loss) {
    if (cost.text_steps == 0) return Number{std::nullopt, "no prompt is text"};
    return Number{std::exp(loss / static_cast<double>(cost.text_steps)), ""};
  };
  cost.original_perplexity = perplexity(original_loss_);
  cost.perplexity = perplexity(loss_);
  return cost;
}

}  // namespace mkbench
