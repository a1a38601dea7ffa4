// What a plugin is told of a model.
#pragma once

#include <string>

#include "references/engine_abi.h"
#include "references/model/architecture.h"

namespace mkbench {

// Throws Error(kBadInput), which begins with `who`, for a model with a part of which mkbench_model
// has no field: a plugin would decode another model.
mkbench_model abi_model(const std::string& who, const ModelConfig& config);

}  // namespace mkbench
