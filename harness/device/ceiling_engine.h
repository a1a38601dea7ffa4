// The engine of role `ceiling`: reads a copy of the weights and KV rows, as much as each step must
// read, and does nothing else. Its ids mean nothing.
#pragma once

#include <memory>

#include "references/engine_maker.h"

namespace mkbench {

// Copies the weights, fills in request.depth KV rows, and searches for the pattern in which steps
// from that depth on are read quickest, unless request.pattern gives one; settings() says which.
// Throws Error(kUnsupportedDevice), Error(kEnvUnfit) if memory does not suffice, Error(kBadInput)
// for a depth outside the context or an invalid pattern.
std::unique_ptr<Engine> make_ceiling(const ModelWeights& weights, const EngineRequest& request);

// Searches again. `ceiling` is an engine of make_ceiling().
void search_again(Engine& ceiling);

}  // namespace mkbench
