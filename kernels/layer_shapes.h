// The layer shapes that kernels compile in: each distinct shape of the published models and of the committed
// checkpoints. The numbers of layers and of vocabulary rows are run-time values, so models that differ only
// there share a shape.
#pragma once

#include "references/model/published.h"

namespace mkbench {

struct LayerShapes {
  ModelShape shapes[kShapeRows + kLiveRows + 3];
  int count;
  int qwen3_count;  // the first qwen3_count shapes have Qwen3's layers, the others do not

  constexpr void add(const ModelShape& shape) {
    for (int i = 0; i < count; ++i) {
      if (shape.same_layer_shape(shapes[i])) return;
    }
    shapes[count++] = shape;
    if (shape.has_qwen3_layers()) qwen3_count = count;
  }
};

constexpr LayerShapes distinct_layer_shapes() {
  LayerShapes list{};
  for (const ShapeRow& row : kShapeTable) list.add(row.shape);
  list.add(kTiny);
  for (const ShapeRow& row : kLiveTable) list.add(row.shape);
  list.add(kTinyLlama);
  list.add(kTinyQwen2);
  return list;
}

inline constexpr LayerShapes kLayerShapes = distinct_layer_shapes();

constexpr bool begin_with_qwen3() {
  for (int i = 0; i < kLayerShapes.count; ++i) {
    if (kLayerShapes.shapes[i].has_qwen3_layers() != (i < kLayerShapes.qwen3_count)) return false;
  }
  return true;
}
static_assert(begin_with_qwen3(),
              "kernel.cu compiles the first shapes, kernel_families.cu the others");

// The index in kLayerShapes of the row `name` of the published models; -1 if there is no such row.
constexpr int layer_shape_index(const char* name) {
  for (const ShapeRow& row : kPublishedModels) {
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
