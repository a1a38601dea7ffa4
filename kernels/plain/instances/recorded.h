// plain's kernel that records its timeline.
#pragma once

#include "references/model/shape.h"

namespace mkbench::plain {

// The kernel for this layer shape; null if none is compiled. Its only argument is a LaunchParams with
// `timeline` set.
const void* recorded_kernel_for(const ModelShape& shape);
// Bytes of dynamic shared memory that a block of that kernel takes.
int recorded_shared_bytes_for(const ModelShape& shape);

}  // namespace mkbench::plain
