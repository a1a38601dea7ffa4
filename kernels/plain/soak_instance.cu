// A device translation unit of its own: plain's kernel as a soak runs it, as PTX for any card of sm_80 and later.
// The exchange counter begins at LaunchParams::first_count, and thread 0 waits before some arrivals. No shipped
// kernel holds code from this file.
#include "kernels/plain/soak_instance.h"

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

const void* soak_kernel_for(const ModelShape& shape) {
  if (shape.same_layer_shape(kTiny))
    return reinterpret_cast<const void*>(&plain_decode<SoakedTiny>);
  if (shape.same_layer_shape(kQwen3_0_6B))
    return reinterpret_cast<const void*>(&plain_decode<SoakedSmall>);
  return nullptr;
}

}  // namespace mkbench::plain
