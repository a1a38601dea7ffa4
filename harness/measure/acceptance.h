// How often comparisons of an engine with itself may give a wrong result before the clock is
// doubted.
#pragma once

namespace mkbench {

// A sound clock passes an acceptance test with this probability.
inline constexpr double kAcceptance = 0.999;

// The smallest k with P(X <= k) >= kAcceptance for X of Binomial(n, p).
int most_by_chance(int n, double p);

// How many of `splits` intervals of one calibration may miss 1. Each is the t interval of
// `processes` of its rounds; in each round the baseline is drawn. Draws from the same few rounds
// miss together: of 200 intervals of 3 processes at alpha 0.05, more than the binomial 21 miss in
// 8 % of sound calibrations with 10 rounds, and in 0.5 % with 60. So this is the quantile
// kAcceptance over simulated calibrations with normal process means (seeded, hence always the
// same), and at least most_by_chance().
int most_missed(int rounds, int processes, int splits, double confidence);

}  // namespace mkbench
