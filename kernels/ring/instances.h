// Host's view of the device translation unit.
#pragma once

#include "kernels/ring/params.h"

namespace mkbench::ring {

// The kernel with what `ablation` leaves out. Its only argument is a LaunchParams.
const void* kernel_for(RingAblation ablation);
int threads_per_block();
// Dynamic shared memory of one block, the same for every ablation.
int shared_bytes();

}  // namespace mkbench::ring
