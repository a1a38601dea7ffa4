// ring's kernel as it records its timeline.
#pragma once

#include "kernels/layer_shapes.h"

namespace mkbench::ring {

// The row whose kernel records: only held shapes say what they do (block.cuh), and all of them are this one.
inline constexpr int kRecordedRow = layer_shape_index("qwen3-0.6b");

// Its only argument is a LaunchParams with `timeline` set.
const void* recorded_kernel();

}  // namespace mkbench::ring
