// A device translation unit of its own: plain's kernel for soaks, as PTX for any card of sm_80 and later.
// The exchange counter begins at LaunchParams::first_count, and thread 0 waits before some arrivals. No shipped
// kernel holds code from this file.
#include "kernels/plain/instances/soak.h"
#include "kernels/plain/kernel.cuh"
#include "kernels/stress_delay.h"

namespace mkbench::plain {
namespace {

struct SoakedTiny {
  static constexpr ModelShape kShape = kTiny;
};
struct SoakedSmall {
  static constexpr ModelShape kShape = kQwen3_0_6B;
};

__device__ int soak_fault;

__device__ __forceinline__ bool planted(PlantedFault fault) {
  return soak_fault == static_cast<int>(fault);
}

__device__ __forceinline__ void delay(const LaunchParams& p, unsigned expected) {
  const unsigned ns = stress_delay_ns(p.delay_seed, blockIdx.x, expected, p.delay_ns);
  if (ns > 0) __nanosleep(ns);
}

}  // namespace

template <>
__device__ __forceinline__ unsigned first_count<SoakedTiny>(const LaunchParams& p) {
  return p.first_count;
}
template <>
__device__ __forceinline__ unsigned first_count<SoakedSmall>(const LaunchParams& p) {
  return p.first_count;
}
template <>
__device__ __forceinline__ void before_arrival<SoakedTiny>(const LaunchParams& p,
                                                           unsigned expected) {
  delay(p, expected);
}
template <>
__device__ __forceinline__ void before_arrival<SoakedSmall>(const LaunchParams& p,
                                                            unsigned expected) {
  delay(p, expected);
}

template <>
__device__ __forceinline__ bool reached<SoakedSmall>(unsigned seen, unsigned expected) {
  if (planted(PlantedFault::kCounterOverflow)) return seen >= expected;
  return static_cast<int>(seen - expected) >= 0;
}

// PlantedFault::kRowsLate: one block does not wait before down in the last layer.
template <>
__device__ __forceinline__ bool GridExchange::block_wait<SoakedSmall>(Shared<SoakedSmall>& s,
                                                                      Phase phase, int layer,
                                                                      int position) const {
  const bool late = planted(PlantedFault::kRowsLate) && phase == Phase::kDown &&
                    layer == p.layer_count - 1 && blockIdx.x == gridDim.x / 2;
  if (threadIdx.x == 0)
    s.wait_ok = late ? 1 : poll<SoakedSmall>(p, s.expected, phase, layer, position);
  __syncthreads();
  return s.wait_ok != 0;
}

template <>
__device__ __forceinline__ bool attends<SoakedSmall>(const ContextSlice<SoakedSmall>& slice,
                                                     int position) {
  if (planted(PlantedFault::kStopsAt2048) && position >= kLastAttended) return false;
  return position < slice.positions.end;
}

bool is_soak_fault(PlantedFault fault) {
  return fault == PlantedFault::kStopsAt2048 || fault == PlantedFault::kRowsLate ||
         fault == PlantedFault::kCounterOverflow;
}

const void* soak_fault_symbol() { return reinterpret_cast<const void*>(&soak_fault); }

const void* soak_kernel_for(const ModelShape& shape) {
  if (shape.same_layer_shape(kTiny))
    return reinterpret_cast<const void*>(&plain_decode<SoakedTiny>);
  if (shape.same_layer_shape(kQwen3_0_6B))
    return reinterpret_cast<const void*>(&plain_decode<SoakedSmall>);
  return nullptr;
}

}  // namespace mkbench::plain
