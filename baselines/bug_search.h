// Tries the known bugs on what a failing engine gave. For .cpp files of this folder only, as
// eager_model.h.
#pragma once

#include "baselines/eager_model.h"
#include "references/bug_fit.h"

namespace mkbench {

// `tensors`: of the truth, in fp32; `config`: of the same model. Two bugs together are tried among the
// five best, where each leaves more than half of the error of the logits; ids alone fit too many
// pairs. Throws Error(kBadInput) for runs that do not fit the model, and libtorch's exceptions.
BugFits search_bugs(const ModelTensors& tensors, const ModelConfig& config,
                    const BugQuestion& question);

}  // namespace mkbench
