// Faults planted around an engine: a correct kernel with mistakes in its integration.
#pragma once

#include <memory>

#include "references/engine.h"

namespace mkbench {

// Wraps `engine` with a fault of FaultSite::kAround; returns `engine` itself for any other fault.
std::unique_ptr<Engine> with_fault_around(std::unique_ptr<Engine> engine, PlantedFault fault);

}  // namespace mkbench
