// Faults around an engine: what an integration may get wrong though its kernel is right.
#pragma once

#include <memory>

#include "references/engine.h"

namespace mkbench {

// `engine` with a fault of FaultSite::kAround; for any other fault, `engine` itself.
std::unique_ptr<Engine> with_fault_around(std::unique_ptr<Engine> engine, PlantedFault fault);

}  // namespace mkbench
