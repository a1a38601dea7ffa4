// The kernels of a run of kLayerShapes, which one translation unit compiles.
#pragma once

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

// Instances [kFirst, kEnd). Kernels named here are compiled, by NVRTC too.
template <int kFirst, int kEnd, int... kIndices>
struct Instances : Instances<kFirst, kEnd - 1, kEnd - 1, kIndices...> {};
template <int kFirst, int... kIndices>
struct Instances<kFirst, kFirst, kIndices...> {
  static constexpr Instance kAll[] = {
      {plain_decode<Compiled<kIndices>>, static_cast<int>(sizeof(Shared<Compiled<kIndices>>))}...};
};

// The instance for a shape of kLayerShapes from qwen3_count on, by its index there (kernel_families.cu).
Instance family_instance(int index);

}  // namespace mkbench::plain
