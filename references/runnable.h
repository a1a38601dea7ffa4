// What this binary can run: the layer shapes that the megakernels are compiled for.
// `mkbench inspect` reads them.
#pragma once

#include <array>
#include <iterator>
#include <string_view>

#include "references/model/published.h"

namespace mkbench {

struct CompiledShape {
  std::string_view name;
  ModelShape shape;  // layers and vocabulary are run-time values
};

// Every row of the shape table, and tiny. A test compares it with the kernels of the engine plain.
inline constexpr auto kCompiledShapes = [] {
  std::array<CompiledShape, std::size(kShapeTable) + 1> all{};
  for (size_t i = 0; i < std::size(kShapeTable); ++i)
    all[i] = {kShapeTable[i].name, kShapeTable[i].shape};
  all.back() = {"tiny", kTiny};
  return all;
}();

// The compiled shape that differs from `shape` in the fewest dimensions of a layer.
const CompiledShape& nearest_compiled(const ModelShape& shape);

}  // namespace mkbench
