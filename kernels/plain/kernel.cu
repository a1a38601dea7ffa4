// The device translation unit of the plain megakernel: its instances, and which of them a model's
// shape takes.
#include "kernels/plain/kernel.cuh"

namespace mkbench::plain {

struct Qwen3Small {
  static constexpr ModelShape kShape = kQwen3_0_6B;
};
struct Tiny {
  static constexpr ModelShape kShape = kTiny;
};

template __global__ void plain_decode<Qwen3Small>(const __grid_constant__ LaunchParams);
template __global__ void plain_decode<Tiny>(const __grid_constant__ LaunchParams);

}  // namespace mkbench::plain

#ifndef __CUDACC_RTC__
#include "kernels/plain/instances.h"

namespace mkbench::plain {

const void* kernel_for(const ModelShape& shape) {
  if (shape.same_layer_shape(kQwen3_0_6B)) {
    return reinterpret_cast<const void*>(&plain_decode<Qwen3Small>);
  }
  if (shape.same_layer_shape(kTiny)) return reinterpret_cast<const void*>(&plain_decode<Tiny>);
  return nullptr;
}

int threads_per_block() { return kThreads; }

}  // namespace mkbench::plain
#endif
