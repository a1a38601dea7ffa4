// What the host sees of phase_kernels.cu.
#pragma once

#include <cstddef>

#include "kernels/phase.h"

namespace mkbench::micro {

// A kernel that runs one phase of the plain megakernel alone, in Qwen3-0.6B's shape: in each step
// once for every layer, or once where the phase stands outside of the layers (LM head). Its
// argument is plain::LaunchParams; every step has the position and input of step 0. Null for
// kEmbed, which is part of kQkv.
const void* phase_kernel(Phase phase);

// Fills device memory with varied values in [-scale, scale], on the default stream.
void fill_bf16(unsigned short* to, size_t count, float scale);
void fill_fp32(float* to, size_t count, float scale);

}  // namespace mkbench::micro
