// The layer shapes that ring is compiled for, taken from the table of shapes.
#pragma once

#include <vector>

#include "kernels/ring/rows.h"

namespace mkbench::testing {

// Calls `f` with the Layout of each shape that ring is compiled for.
template <int kRow = 0, typename F>
void for_each_layout(F&& f) {
  if constexpr (kRow < kLayerShapes.count) {
    if constexpr (ring::has_layout(kLayerShapes.shapes[kRow])) f(ring::Layout<kRow>{});
    for_each_layout<kRow + 1>(f);
  }
}

// Returns these shapes in the table's order: Qwen3-0.6B's first.
inline std::vector<ModelShape> ring_shapes() {
  std::vector<ModelShape> shapes;
  for_each_layout([&]<typename L>(L) { shapes.push_back(L::kShape); });
  return shapes;
}

}  // namespace mkbench::testing
