// Host's view of the device translation unit.
#pragma once

#include "references/qwen3.h"

namespace mkbench::plain {

// The kernel compiled for a layer shape (layers and vocabulary are run-time values), or null.
const void* kernel_for(const ModelShape& shape);
int threads_per_block();

}  // namespace mkbench::plain
