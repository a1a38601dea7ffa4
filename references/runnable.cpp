#include "references/runnable.h"

#include <fmt/format.h>

#include <algorithm>

namespace mkbench {
namespace {

constexpr const ModelKind& kQwen3 = kModelKinds[0];

int differences(const ModelShape& a, const ModelShape& b) {
  return (a.hidden != b.hidden) + (a.intermediate != b.intermediate) + (a.heads != b.heads) +
         (a.kv_heads != b.kv_heads) + (a.head_dim != b.head_dim);
}

}  // namespace

const ModelKind* find_kind(std::string_view model_type) {
  const auto* found =
      std::find_if(std::begin(kModelKinds), std::end(kModelKinds),
                   [&](const ModelKind& kind) { return kind.model_type == model_type; });
  return found == std::end(kModelKinds) ? nullptr : found;
}

std::string loadable_kinds() {
  std::string text;
  for (const ModelKind& kind : kModelKinds)
    text += fmt::format("{}'{}'", text.empty() ? "" : " or ", kind.model_type);
  return text;
}

std::string name_in(const ModelKind& kind, std::string_view qwen3_name) {
  if (qwen3_name == kQwen3.embedding) return std::string(kind.embedding);
  if (qwen3_name == kQwen3.head) return std::string(kind.head);
  return std::string(kind.trunk) + std::string(qwen3_name.substr(kQwen3.trunk.size()));
}

std::string_view uncovered_part(const ModelKind& kind, std::string_view tensor) {
  for (const UncoveredPart& part : kind.uncovered) {
    if (tensor.starts_with(part.prefix)) return part.what;
  }
  return {};
}

const CompiledShape& nearest_compiled(const ModelShape& shape) {
  return *std::min_element(std::begin(kCompiledShapes), std::end(kCompiledShapes),
                           [&](const CompiledShape& a, const CompiledShape& b) {
                             return differences(a.shape, shape) < differences(b.shape, shape);
                           });
}

}  // namespace mkbench
