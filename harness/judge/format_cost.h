// Figures of FormatCost from two truths' logits.
#pragma once

#include <cstdint>
#include <span>

#include "harness/report/format_cost.h"

namespace mkbench {

class CostSums {
 public:
  // Logits [vocab] of the original model and of the quantised one at one step; `next`: the id that
  // follows in a text, -1 elsewhere. Throws Error(kBadInput) for rows of two lengths.
  void add(std::span<const float> original, std::span<const float> quantised, int32_t next);
  FormatCost cost() const;

 private:
  FormatCost sums_;
  double original_loss_ = 0, loss_ = 0;  // of the ids of texts, in nats
};

}  // namespace mkbench
