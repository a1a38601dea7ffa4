// Where a failure begins, told to people: the first layer and the first KV row that leave the
// truth's band, and on the analytic checkpoint the lag that explains a wrong token.
#pragma once

#include <string>
#include <string_view>

#include "harness/judge/parity.h"

namespace mkbench {

// A state is out of its band when its NMSE against the truth is above this times the baseline's.
inline constexpr double kBandFactor = 4;

// Engines that walk the same path; the truth computes in fp32.
struct LocaliseEngines {
  Engine& candidate;
  Engine& truth;
  Engine& baseline;
};

// Teacher-forces the prompt up to step `step` on all three engines. Names the first layer whose
// hidden state is out of its band, and the first KV row (by layer, then position) that is. For KV
// rows the baseline's NMSE is its largest one in the layer. The text says so where the candidate
// shows neither hidden states nor KV rows.
std::string localise(const LocaliseEngines& engines, int layers, int vocab,
                     const ReferencePrompt& prompt, int step);

// Names the lags of `lagset` (and so the planted layers) that give `wrong_id` after the prompt's
// first `step` steps when their contribution is missing or taken from another position. The text
// says so where no lag does.
std::string localise_lag(std::string_view lagset, const ReferencePrompt& prompt, int step,
                         int32_t wrong_id);

}  // namespace mkbench
