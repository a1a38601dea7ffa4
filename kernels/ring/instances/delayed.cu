#include "kernels/ring/instances/delayed.h"
#include "kernels/ring/kernel.cuh"

namespace mkbench::ring {

template __global__ void ring_decode<Layout<kHeldRow>, RingAblation::kDelayed>(
    const __grid_constant__ LaunchParams);

const void* delayed_kernel() {
  return reinterpret_cast<const void*>(&ring_decode<Layout<kHeldRow>, RingAblation::kDelayed>);
}

}  // namespace mkbench::ring
