// The device translation unit of the plain megakernel: one instance for each of kLayerShapes, and
// the choice of the instance for a model's shape.
#include "kernels/layer_shapes.h"
#include "kernels/plain/kernel.cuh"

namespace mkbench::plain {

template <int kIndex>
struct Compiled {
  static constexpr ModelShape kShape = kLayerShapes.shapes[kIndex];
};

using Kernel = void (*)(const LaunchParams);
struct Instance {
  Kernel kernel;
  int shared_bytes;
};

// Instances [0, kCount). Kernels named here are compiled, by NVRTC too.
template <int kCount, int... kIndices>
struct Instances : Instances<kCount - 1, kCount - 1, kIndices...> {};
template <int... kIndices>
struct Instances<0, kIndices...> {
  static constexpr Instance kAll[] = {
      {plain_decode<Compiled<kIndices>>, static_cast<int>(sizeof(Shared<Compiled<kIndices>>))}...};
};
template struct Instances<kLayerShapes.count>;

}  // namespace mkbench::plain

#ifndef __CUDACC_RTC__
#include "kernels/plain/kernel.h"

namespace mkbench::plain {
namespace {

Instance instance_of(const ModelShape& shape) {
  for (int i = 0; i < kLayerShapes.count; ++i) {
    if (shape.same_layer_shape(kLayerShapes.shapes[i]))
      return Instances<kLayerShapes.count>::kAll[i];
  }
  return {};
}

}  // namespace

const void* kernel_for(const ModelShape& shape) {
  return reinterpret_cast<const void*>(instance_of(shape).kernel);
}

int shared_bytes_for(const ModelShape& shape) { return instance_of(shape).shared_bytes; }

int threads_per_block() { return kThreads; }

}  // namespace mkbench::plain
#endif
