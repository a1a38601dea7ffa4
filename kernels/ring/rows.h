// Which layer shapes ring runs, on which architectures, and why it rejects the others. All other
// code asks these functions or with_layout().
#pragma once

#include <string>
#include <utility>

#include "kernels/ring/params.h"
#include "references/base/error.h"

namespace mkbench::ring {

// Calls `f` with the Layout of the shape, which must be compiled in: layout_obstacle() is empty.
template <int kRow = 0, typename F>
auto with_layout(const ModelShape& shape, F&& f) {
  if constexpr (kRow < kLayerShapes.count) {
    if constexpr (has_layout(kLayerShapes.shapes[kRow])) {
      if (shape.same_layer_shape(kLayerShapes.shapes[kRow])) return f(Layout<kRow>{});
    }
    return with_layout<kRow + 1>(shape, std::forward<F>(f));
  } else {
#ifndef __CUDACC_RTC__  // NVRTC, in dev/check_cuda128.py, has no exceptions
    throw Error(ErrorKind::kRuntime, "ring: no layout for these layers");
#endif
    return f(Layout<0>{});
  }
}

// Why no layout is compiled in for these layers, one line; empty if one is.
std::string layout_obstacle(const ModelShape& shape);

// Why cards of this major compute capability cannot run these layers, which have a layout; empty if
// they can.
std::string room_obstacle(const ModelShape& shape, int compute_major);

// Number of slots in the ring of the kernel for these layers.
inline int ring_slots(const ModelShape& shape, int compute_major) {
  return with_layout(shape, [=]<typename L>(L) { return ring_slots<L>(compute_major); });
}

}  // namespace mkbench::ring
