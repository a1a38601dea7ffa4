// A device translation unit of its own: plain's kernel that records its timeline, as PTX for any card of sm_80 and
// later. No shipped kernel holds code from this file.
#include "kernels/layer_shapes.h"
#include "kernels/plain/block.cuh"

namespace mkbench::plain {

template <int kIndex>
struct Recorded {
  static constexpr ModelShape kShape = kLayerShapes.shapes[kIndex];
};
template <int kIndex>
inline constexpr bool kRecords<Recorded<kIndex>> = true;

}  // namespace mkbench::plain

#include "kernels/plain/instances/recorded.h"
#include "kernels/plain/kernel.cuh"

namespace mkbench::plain {
namespace {

template <int kIndex>
const void* find_kernel(const ModelShape& shape, int& shared_bytes) {
  if constexpr (kIndex < kLayerShapes.count) {
    if (!shape.same_layer_shape(kLayerShapes.shapes[kIndex]))
      return find_kernel<kIndex + 1>(shape, shared_bytes);
    shared_bytes = static_cast<int>(sizeof(Shared<Recorded<kIndex>>));
    return reinterpret_cast<const void*>(&plain_decode<Recorded<kIndex>>);
  }
  return nullptr;
}

}  // namespace

const void* recorded_kernel_for(const ModelShape& shape) {
  int shared_bytes = 0;
  return find_kernel<0>(shape, shared_bytes);
}

int recorded_shared_bytes_for(const ModelShape& shape) {
  int shared_bytes = 0;
  find_kernel<0>(shape, shared_bytes);
  return shared_bytes;
}

}  // namespace mkbench::plain
