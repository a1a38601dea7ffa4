#include "references/runnable.h"

#include <fmt/format.h>

#include <algorithm>

#include "references/model/architecture.h"

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

std::string unlike_qwen3(const ModelShape& s) {
  std::string text;
  const auto add = [&text](bool differs, const std::string& part) {
    if (differs) text += (text.empty() ? "" : ", ") + part;
  };
  add(!s.qk_norm, "no QK-norm");
  add(s.qkv_bias, "biases of q, k and v");
  add(s.norm_offset != 0, fmt::format("norm weights + {}", s.norm_offset));
  add(s.activation != Activation::kSilu, std::string(activation_name(s.activation)));
  add(s.embedding_multiplier != 1, fmt::format("embedding times {:g}", s.embedding_multiplier));
  return text;
}

}  // namespace mkbench
