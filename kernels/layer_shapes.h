// The layer shapes that kernels compile in: each distinct one of the shape table, and tiny's. The numbers
// of layers and of vocabulary rows are run-time values, so models that differ only there share one.
#pragma once

#include "references/shape_table.h"

namespace mkbench {

inline constexpr int kShapeRows = static_cast<int>(sizeof kShapeTable / sizeof kShapeTable[0]);

struct LayerShapes {
  ModelShape shapes[kShapeRows + 1];
  int count;
};

constexpr LayerShapes distinct_layer_shapes() {
  LayerShapes list{};
  for (int row = 0; row <= kShapeRows; ++row) {
    const ModelShape shape = row < kShapeRows ? kShapeTable[row].shape : kTiny;
    bool known = false;
    for (int i = 0; i < list.count; ++i) known = known || shape.same_layer_shape(list.shapes[i]);
    if (!known) list.shapes[list.count++] = shape;
  }
  return list;
}

inline constexpr LayerShapes kLayerShapes = distinct_layer_shapes();

}  // namespace mkbench
