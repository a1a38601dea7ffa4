// Describes where a failure begins: the first layer and the first KV row whose error against the
// truth is out of its band, and on the analytic checkpoint the lag that explains a wrong token.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "harness/report/failed_step.h"
#include "references/engine.h"
#include "references/greedy_reference.h"

namespace mkbench {

// A state is out of its band if its NMSE against the truth exceeds kBandFactor x the baseline's.
inline constexpr double kBandFactor = 4;

// Engines that walk the same path; the truth computes in fp32.
struct LocaliseEngines {
  Engine& candidate;
  Engine& truth;
  Engine& baseline;
};

// Results of the engines at the last step of a walk: logits [vocab], empty for a candidate that
// shows none, the candidate's id (-1: none came back), the errors of its hidden states as in
// FailedStep, and of its logits at this step and the last ones before it.
struct LastStep {
  std::vector<float> candidate{}, truth{}, baseline{};
  int32_t id = -1;
  std::vector<ErrorAt> by_layer{}, by_position{};
};

// Teacher-forces the prompt up to step `step` on the candidate; truth and baseline prefill the steps
// before the last ones. Names the first layer whose hidden state is out of its band, and
// the first KV row (by layer, then position) out of its band; a layer has one band for K of its rows
// and one for V, from the baseline's largest NMSE. Names the parts of the layer that this leaves; if
// the rows are in band, another walk of one id tells those of the query from those behind
// attention. Says so if the candidate shows no hidden states or KV rows.
std::string localise(const LocaliseEngines& engines, int layers, int vocab,
                     const ReferencePrompt& prompt, int step, LastStep* last = nullptr);

// Names the lags of `lagset` (and so the planted layers of `shape`) that give `wrong_id` after the
// prompt's first `step` steps when their contribution is missing or taken from another position.
// Says so if no lag does.
std::string localise_lag(std::string_view lagset, const ModelShape& shape,
                         const ReferencePrompt& prompt, int step, int32_t wrong_id);

}  // namespace mkbench
