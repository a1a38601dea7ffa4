// plain for a soak: counters that begin where the launch says, and delays before arrivals.
#pragma once

#include "references/model_shape.h"

namespace mkbench::plain {

// The kernel for this layer shape; null where it is not compiled. Its only argument is a LaunchParams.
const void* soak_kernel_for(const ModelShape& shape);

}  // namespace mkbench::plain
