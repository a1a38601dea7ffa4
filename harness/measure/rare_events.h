// What can be said of the rate of an event that was seen a few times, or never, in independent trials.
#pragma once

#include <cstdint>

#include "harness/measure/statistics.h"

namespace mkbench {

// The rates that go with `seen` events in `trials` trials: the interval of Clopper and Pearson, exact for a
// binomial count. For none seen it is one-sided, from 0 to 1 - (1 - confidence)^(1 / trials), which is just
// below 3 / trials at 95 %. [0, 1] without trials.
Interval rate_interval(int64_t seen, int64_t trials, double confidence);

}  // namespace mkbench
