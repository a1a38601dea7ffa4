// The host's view of the kernels of one layer shape (a row of kLayerShapes), which rows/ compiles.
#pragma once

#include "kernels/ring/params.h"

namespace mkbench::ring {

template <int kRow>
struct RowKernels {
  // The kernel for `ablation`; null if rows/ compiles none. Its only argument is a LaunchParams.
  static const void* kernel_for(RingAblation ablation);
  static int threads_per_block();
  // Dynamic shared memory of one block in bytes, the same for every ablation.
  static int shared_bytes(int compute_major);
};

}  // namespace mkbench::ring
