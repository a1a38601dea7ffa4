// A device translation unit: the instances of the plain megakernel for Qwen3's layers, and the choice of the
// instance for a model's shape. kernel_families.cu has the others.
#include "kernels/plain/instances/table.cuh"

namespace mkbench::plain {

template struct Instances<0, kLayerShapes.qwen3_count>;

}  // namespace mkbench::plain

#ifndef __CUDACC_RTC__
#include "kernels/plain/kernel.h"

namespace mkbench::plain {

namespace {

Instance instance_of(const ModelShape& shape) {
  for (int i = 0; i < kLayerShapes.count; ++i) {
    if (!shape.same_layer_shape(kLayerShapes.shapes[i])) continue;
    return i < kLayerShapes.qwen3_count ? Instances<0, kLayerShapes.qwen3_count>::kAll[i]
                                        : family_instance(i);
  }
  return {};
}

}  // namespace

const void* kernel_for(const ModelShape& shape) {
  return reinterpret_cast<const void*>(instance_of(shape).kernel);
}

int shared_bytes_for(const ModelShape& shape) { return instance_of(shape).shared_bytes; }

int threads_per_block() { return kThreads<Compiled<0>>; }

}  // namespace mkbench::plain
#endif
