#include "harness/plugin/model.h"

#include <fmt/format.h>

#include "references/base/error.h"

namespace mkbench {
namespace {

// The first part of the model that mkbench_model has no field for; empty if it has all.
std::string other_part(const ModelConfig& config) {
  if (!config.shape.qk_norm) return "no QK-norm";
  if (config.shape.qkv_bias) return "biases of q, k and v";
  if (config.rope.scaling != RopeScaling::kNone) return "scaled rotary frequencies";
  return {};
}

}  // namespace

mkbench_model abi_model(const std::string& who, const ModelConfig& config) {
  const std::string part = other_part(config);
  if (!part.empty())
    throw Error(ErrorKind::kBadInput,
                fmt::format("{}: the C interface describes Qwen3 alone, and this model has {}; an "
                            "engine in Python (--engine FILE.py) gets the folder itself",
                            who, part));
  const ModelShape& s = config.shape;
  return {.hidden = s.hidden,
          .intermediate = s.intermediate,
          .layers = s.layers,
          .heads = s.heads,
          .kv_heads = s.kv_heads,
          .head_dim = s.head_dim,
          .vocab = s.vocab,
          .tied = config.tie_word_embeddings ? 1 : 0,
          .rope_theta = config.rope.theta,
          .rms_norm_eps = config.rms_norm_eps};
}

}  // namespace mkbench
