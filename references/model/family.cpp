#include "references/model/family.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "references/base/error.h"

namespace mkbench {

extern const Family kQwen2Family, kLlamaFamily, kMistralFamily, kTalkerFamily;

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

void set_layers(const Family& family, ModelShape& shape) {
  shape.qk_norm = family.qk_norm;
  shape.qkv_bias = family.qkv_bias;
  shape.norm_offset = family.norm_offset;
  shape.activation = family.activation;
  shape.embedding_multiplier = family.scales_embeddings ? std::sqrt(shape.hidden) : 1;
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

const Family& family_with(const ModelShape& shape) {
  for (const Family* family : kFamilies) {
    ModelShape of_family = shape;
    set_layers(*family, of_family);
    if (of_family == shape && family->config_key.empty()) return *family;
  }
  throw Error(ErrorKind::kBadInput,
              "config.json: no model_type has these layers: " + unlike_qwen3(shape));
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
