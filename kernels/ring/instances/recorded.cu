// A device translation unit of its own: no shipped kernel holds code from this file.
#include "kernels/ring/instances/recorded.h"
#include "kernels/ring/kernel.cuh"

namespace mkbench::ring {

using Recorded = Layout<kHeldRow>;

template __global__ void ring_decode<Recorded, RingAblation::kRecorded>(
    const __grid_constant__ LaunchParams);

const void* recorded_kernel() {
  return reinterpret_cast<const void*>(&ring_decode<Recorded, RingAblation::kRecorded>);
}

}  // namespace mkbench::ring
