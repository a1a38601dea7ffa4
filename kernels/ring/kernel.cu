// Device translation unit: the instances of the ring megakernel.
#include "kernels/ring/kernel.cuh"

namespace mkbench::ring {

template __global__ void ring_decode<RingAblation::kNone>(const __grid_constant__ LaunchParams);
template __global__ void ring_decode<RingAblation::kNoWaits>(const __grid_constant__ LaunchParams);
template __global__ void ring_decode<RingAblation::kNoLoads>(const __grid_constant__ LaunchParams);

}  // namespace mkbench::ring

#ifndef __CUDACC_RTC__
#include "kernels/cuda_check.h"
#include "kernels/ring/instances.h"

namespace mkbench::ring {

const void* kernel_for(RingAblation ablation) {
  switch (ablation) {
    case RingAblation::kNone:
      return reinterpret_cast<const void*>(&ring_decode<RingAblation::kNone>);
    case RingAblation::kNoWaits:
      return reinterpret_cast<const void*>(&ring_decode<RingAblation::kNoWaits>);
    case RingAblation::kNoLoads:
      return reinterpret_cast<const void*>(&ring_decode<RingAblation::kNoLoads>);
    case RingAblation::kDelayed:   // not shipped: delayed_instance.cu
    case RingAblation::kRecorded:  // recorded_instance.cu
      break;
  }
  return nullptr;
}

int threads_per_block() { return kThreads; }

int shared_bytes() {
  int device = 0, major = 0;
  MKBENCH_CUDA(cudaGetDevice(&device));
  MKBENCH_CUDA(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  return shared_bytes(major);
}

}  // namespace mkbench::ring
#endif
