// What mkbench-host-cuda can do besides calling engines: whatever needs CUDA.
#pragma once

#include <functional>
#include <string>

#include "harness/wire/calls.h"

namespace mkbench {

CardFacts card_facts(const CardCall& call);

// Sweeps ring's tuning on a card; calls `say` with the name of each stage. Throws
// Error(kUnsupportedDevice).
Tuned tune_ring(const TuneCall& call, const std::function<void(const std::string&)>& say);

}  // namespace mkbench
