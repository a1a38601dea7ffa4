// What this binary can run: the layer shapes that the megakernels are compiled for.
// `mkbench inspect` reads them.
#pragma once

#include <array>
#include <string_view>

#include "references/model/published.h"

namespace mkbench {

struct CompiledShape {
  std::string_view name;
  ModelShape shape;  // layers and vocabulary are run-time values
};

// Every published model, and the committed ones. A test compares it with the kernels of the engine plain.
inline constexpr auto kCompiledShapes = [] {
  std::array<CompiledShape, kShapeRows + kLiveRows + 3> all{};
  size_t count = 0;
  for (const ShapeRow& row : kPublishedModels) all[count++] = {row.name, row.shape};
  all[count++] = {"tiny", kTiny};
  all[count++] = {"tiny-llama", kTinyLlama};
  all[count++] = {"tiny-qwen2", kTinyQwen2};
  return all;
}();

// The compiled shape that differs from `shape` in the fewest parts of a layer and, among equals, in the
// fewest dimensions.
const CompiledShape& nearest_compiled(const ModelShape& shape);

}  // namespace mkbench
