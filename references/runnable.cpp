#include "references/runnable.h"

#include <algorithm>

namespace mkbench {
namespace {

int differences(const ModelShape& a, const ModelShape& b) {
  return (a.hidden != b.hidden) + (a.intermediate != b.intermediate) + (a.heads != b.heads) +
         (a.kv_heads != b.kv_heads) + (a.head_dim != b.head_dim);
}

}  // namespace

const CompiledShape& nearest_compiled(const ModelShape& shape) {
  return *std::min_element(std::begin(kCompiledShapes), std::end(kCompiledShapes),
                           [&](const CompiledShape& a, const CompiledShape& b) {
                             return differences(a.shape, shape) < differences(b.shape, shape);
                           });
}

}  // namespace mkbench
