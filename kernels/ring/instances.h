// The host's view of the device translation unit kernel.cu.
#pragma once

#include "kernels/ring/params.h"

namespace mkbench::ring {

// The kernel that leaves out what `ablation` says. Its only argument is a LaunchParams.
const void* kernel_for(RingAblation ablation);
int threads_per_block();
// Dynamic shared memory of one block in bytes, the same for every ablation.
int shared_bytes();

}  // namespace mkbench::ring
