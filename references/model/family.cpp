#include "references/model/family.h"

#include <algorithm>
#include <iterator>

namespace mkbench {
namespace {

constexpr const Family* kFamilies[] = {&kQwen3Family, &kQwen2Family, &kLlamaFamily, &kMistralFamily,
                                       &kTalkerFamily};

}  // namespace

const Family* find_family(std::string_view model_type) {
  const auto* found =
      std::find_if(std::begin(kFamilies), std::end(kFamilies),
                   [&](const Family* family) { return family->model_type == model_type; });
  return found == std::end(kFamilies) ? nullptr : *found;
}

const Family& family_of(const ModelShape& shape) {
  return shape.qk_norm ? kQwen3Family : shape.qkv_bias ? kQwen2Family : kLlamaFamily;
}

std::string loadable_families() {
  std::string text;
  for (const Family* family : kFamilies) {
    const bool last = family == *std::rbegin(kFamilies);
    text += (text.empty() ? ""
             : last       ? " or "
                          : ", ") +
            ("'" + std::string(family->model_type) + "'");
  }
  return text;
}

std::string_view rope_types(const Family& family) {
  return family.scales_rope ? "'default', 'linear' or 'llama3'" : "'default'";
}

std::string name_in(const Family& family, std::string_view name) {
  const Family plain;
  if (name == plain.embedding) return std::string(family.embedding);
  if (name == plain.head) return std::string(family.head);
  return std::string(family.trunk) + std::string(name.substr(plain.trunk.size()));
}

std::string_view uncovered_part(const Family& family, std::string_view tensor) {
  for (const UncoveredPart& part : family.uncovered) {
    if (tensor.starts_with(part.prefix)) return part.what;
  }
  return {};
}

}  // namespace mkbench
