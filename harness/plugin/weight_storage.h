// Reads what a library says of how it keeps a weight.
#pragma once

#include <optional>
#include <string>

#include "references/engine_abi.h"
#include "references/weight_storage.h"

namespace mkbench {

// nullopt for NULL. Throws Error(kBadInput), beginning with `who`, for a type that engine_abi.h has no name for,
// and for scales without a block.
std::optional<WeightStorage> storage_of(const mkbench_storage* told, const std::string& who);

}  // namespace mkbench
