// Host's view of the device translation unit of the phase microbenchmarks.
#pragma once

#include <cstddef>

#include "kernels/phase.h"

namespace mkbench::micro {

// A kernel that runs one phase of the plain megakernel, in Qwen3-0.6B's shape, and no other: in
// each of its steps over all layers, or once where the phase is no layer's. Takes
// plain::LaunchParams; position and input of step 0 hold in every step. Null for kEmbed, which is
// part of kQkv.
const void* phase_kernel(Phase phase);

// Fills device memory on the default stream with distinct values in [-scale, scale].
void fill_bf16(unsigned short* to, size_t count, float scale);
void fill_fp32(float* to, size_t count, float scale);

}  // namespace mkbench::micro
