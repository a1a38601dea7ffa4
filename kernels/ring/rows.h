// Which layer shapes ring runs, on which architectures, and why not the others. The only place that
// says so: everything else asks here, or goes through with_layout().
#pragma once

#include <string>
#include <utility>

#include "kernels/ring/params.h"
#include "references/base/error.h"

namespace mkbench::ring {

// A block's SwiGLU units are a multiple of kUnitStep, or one and kUnitRest more.
inline constexpr int kUnitStep = 24, kUnitRest = 4;

// Which dimensions of a shape Layout can hold. A row for which Layout's asserts say more does not compile.
struct LayoutFits {
  bool kv_heads, head_dim, heads, hidden, intermediate;
  constexpr bool all() const { return kv_heads && head_dim && heads && hidden && intermediate; }
};
constexpr LayoutFits layout_fits(const ModelShape& s) {
  const int units = s.intermediate / kBlocks, rest = units % kUnitStep;
  return {.kv_heads = s.kv_heads == kGroups,
          .head_dim = s.head_dim == kHeadDim,
          .heads = s.heads == 2 * kGroups || s.heads == 4 * kGroups,
          .hidden = s.hidden % (16 * kConsumerWarps) == 0,
          .intermediate = s.intermediate % kBlocks == 0 && (rest == 0 || rest == kUnitRest)};
}
constexpr bool has_layout(const ModelShape& s) { return layout_fits(s).all(); }

// Calls `f` with the Layout of the shape, which must be compiled in: layout_obstacle() is empty.
template <int kRow = 0, typename F>
auto with_layout(const ModelShape& shape, F&& f) {
  if constexpr (kRow < kLayerShapes.count) {
    if constexpr (has_layout(kLayerShapes.shapes[kRow])) {
      if (shape.same_layer_shape(kLayerShapes.shapes[kRow])) return f(Layout<kRow>{});
    }
    return with_layout<kRow + 1>(shape, std::forward<F>(f));
  } else {
    throw Error(ErrorKind::kRuntime, "ring: no layout for these layers");
    return f(Layout<0>{});
  }
}

// Why no layout is compiled in for these layers, one line; empty where there is one.
std::string layout_obstacle(const ModelShape& shape);

// Why cards of that major compute capability cannot run these layers, which have a layout; empty where
// they can.
std::string room_obstacle(const ModelShape& shape, int compute_major);

// Slots of the ring of these layers.
inline int ring_slots(const ModelShape& shape, int compute_major) {
  return with_layout(shape, [=]<typename L>(L) { return ring_slots<L>(compute_major); });
}

}  // namespace mkbench::ring
