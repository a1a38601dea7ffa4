// Tries the known bugs on what a failing engine gave. For .cpp files of this folder only, as
// eager_model.h.
#pragma once

#include <functional>

#include "baselines/deviant_model.h"

namespace mkbench {

// `config`: of the truth whose tensors the model has. `now`: a clock in seconds. Two bugs together
// are tried among the five best, where each leaves more than half of the error of the logits; ids
// alone fit too many pairs. Throws libtorch's exceptions.
BugFits search_bugs(const DeviantModel& model, const ModelConfig& config,
                    const BugQuestion& question, const std::function<double()>& now);

}  // namespace mkbench
