// How many near ties an engine may decide differently from the truth.
#pragma once

#include "references/greedy_reference.h"

namespace mkbench {

// Largest probability that an engine with the baseline's errors exceeds most_flips().
inline constexpr double kFlipAlpha = 0.001;

// The most flips that pass: the smallest k with P(X > k) <= kFlipAlpha, where X counts the steps of
// the reference that are not decided, each flipped independently with the probability that a normal
// error of the difference of two logits exceeds the truth's margin. Its deviation is half of D_t,
// the largest such error of the baseline at that step, or half of the median D_t, whichever is
// larger; half of D_t is no underestimate, because D_t is the largest of 496 differences.
// `logits_bf16`: the engine rounds its logits, which adds 2 roundings. 0 if no step is a near tie.
int most_flips(const GreedyReference& reference, bool logits_bf16);

}  // namespace mkbench
