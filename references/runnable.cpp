#include "references/runnable.h"

#include <algorithm>

namespace mkbench {
namespace {

// A part that a layer has or lacks weighs more than all five dimensions: another family is further away.
int distance(const ModelShape& a, const ModelShape& b) {
  return (a.hidden != b.hidden) + (a.intermediate != b.intermediate) + (a.heads != b.heads) +
         (a.kv_heads != b.kv_heads) + (a.head_dim != b.head_dim) +
         6 * ((a.qk_norm != b.qk_norm) + (a.qkv_bias != b.qkv_bias));
}

}  // namespace

const CompiledShape& nearest_compiled(const ModelShape& shape) {
  return *std::min_element(std::begin(kCompiledShapes), std::end(kCompiledShapes),
                           [&](const CompiledShape& a, const CompiledShape& b) {
                             return distance(a.shape, shape) < distance(b.shape, shape);
                           });
}

}  // namespace mkbench
