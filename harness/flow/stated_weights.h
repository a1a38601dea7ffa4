// --truth dequantised: what the candidate says that its weights stand for, taken before anything is judged.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "harness/flow/contestant.h"
#include "harness/flow/services.h"

namespace mkbench {

// Opens the candidates until one has said it, unless an earlier case of the run has taken it, and fails those
// that cannot, or whose values cannot be right. Throws what concerns the truth's process.
std::optional<StatedWeights> take_stated_weights(const CaseServices& services,
                                                 const std::vector<Contestant*>& candidates,
                                                 const std::function<void(Contestant&)>& open,
                                                 EventSink& sink);

}  // namespace mkbench
