// The layer shapes that kernels compile in: each distinct shape of the shape table, and tiny's. The numbers
// of layers and of vocabulary rows are run-time values, so models that differ only there share a shape.
#pragma once

#include "references/model/published.h"

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

constexpr bool all_have_qwen3_layers() {
  for (int i = 0; i < kLayerShapes.count; ++i) {
    if (!kLayerShapes.shapes[i].has_qwen3_layers()) return false;
  }
  return true;
}
static_assert(all_have_qwen3_layers(),
              "kernels have no code for layers without QK-norm, or with biases");

// The index in kLayerShapes of the row `name` of the shape table; -1 if the table has no such row.
constexpr int layer_shape_index(const char* name) {
  for (const ShapeRow& row : kShapeTable) {
    const char *a = row.name, *b = name;
    for (; *a != '\0' && *a == *b; ++a, ++b) {
    }
    if (*a != *b) continue;
    for (int i = 0; i < kLayerShapes.count; ++i) {
      if (row.shape.same_layer_shape(kLayerShapes.shapes[i])) return i;
    }
  }
  return -1;
}

}  // namespace mkbench
