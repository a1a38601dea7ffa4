// Where a failure begins, for people: the first layer and the first KV row that leave T's band, and
// on the analytic checkpoint the lag that a wrong token betrays.
#pragma once

#include <string>
#include <string_view>

#include "harness/judge/parity.h"

namespace mkbench {

// A state is out of its band when its NMSE against T's is above this times the baseline's.
inline constexpr double kBandFactor = 4;

// Engines that walk the same path: the candidate, T (fp32) and B.
struct LocaliseEngines {
  Engine& candidate;
  Engine& truth;
  Engine& baseline;
};

// Teacher-forces the prompt up to step `step` on all three and names the first layer whose hidden
// state, and the first KV row (by layer, then position) that is out of its band. The baseline's
// band of KV rows is its largest NMSE in the layer. Says so where the candidate shows neither.
std::string localise(const LocaliseEngines& engines, int layers, int vocab,
                     const ReferencePrompt& prompt, int step);

// Which lag of `lagset`, and so which planted layer, would answer `wrong_id` after the prompt's
// first `step` steps, if its contribution were missing or taken from another position. Says so
// where none would.
std::string localise_lag(std::string_view lagset, const ReferencePrompt& prompt, int step,
                         int32_t wrong_id);

}  // namespace mkbench
