// The engine of role `ceiling`: in each step it reads as many bytes of weights and KV rows as a
// decoder must, and does nothing else. Its ids mean nothing.
#pragma once

#include <memory>

#include "references/engine_maker.h"

namespace mkbench {

// Copies the weights, makes KV rows, and searches for the pattern that reads steps from
// request.depth on quickest, unless request.settings gives one; settings() names the pattern. Throws
// Error(kUnsupportedDevice), Error(kEnvUnfit) if memory does not suffice, Error(kBadInput) for a
// depth outside the context or an invalid pattern.
std::unique_ptr<Engine> make_ceiling(const ModelWeights& weights, const EngineRequest& request);

// Searches for the pattern again. `ceiling` must come from make_ceiling().
void search_again(Engine& ceiling);

}  // namespace mkbench
