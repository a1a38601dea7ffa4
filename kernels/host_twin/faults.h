// The host twin's phases with a fault planted in them, for the fault corpus.
#pragma once

#include <memory>

#include "kernels/host_twin/phases.h"
#include "references/fault_kind.h"

namespace mkbench::host_twin {

// Phases with `fault` planted; unchanged for kNone and for a fault that is planted elsewhere.
std::unique_ptr<Phases> make_phases(PlantedFault fault, int blocks);

}  // namespace mkbench::host_twin
