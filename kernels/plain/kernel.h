// What the host sees of kernel.cu, the device translation unit.
#pragma once

#include "references/model/shape.h"

namespace mkbench::plain {

// The kernel compiled for a layer shape, or null. The numbers of layers and of vocabulary rows are
// run-time values.
const void* kernel_for(const ModelShape& shape);
// Bytes of dynamic shared memory that a block of that kernel takes; 0 without a kernel.
int shared_bytes_for(const ModelShape& shape);
int threads_per_block();

}  // namespace mkbench::plain
