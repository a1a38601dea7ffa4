// plain's kernel for soaks: the launch sets where the exchange counter begins, and delays before arrivals.
#pragma once

#include "references/fault_kind.h"
#include "references/model/shape.h"

namespace mkbench::plain {

// The kernel for this layer shape; null if none is compiled. Its only argument is a LaunchParams.
const void* soak_kernel_for(const ModelShape& shape);

// Faults that a short test misses, planted in the instance for Qwen3-0.6B's layers: attention stops at 2,048
// positions; one block reads rows without waiting; the counter is compared as if it never overflowed.
bool is_soak_fault(PlantedFault fault);
// The device variable of type int that holds the PlantedFault; initially kNone.
const void* soak_fault_symbol();

}  // namespace mkbench::plain
