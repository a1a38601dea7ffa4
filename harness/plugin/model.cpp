#include "harness/plugin/model.h"

#include "references/base/json_strict.h"
#include "references/config.h"

namespace mkbench {
namespace {

int32_t abi_scaling(RopeScaling scaling) {
  if (scaling == RopeScaling::kNone) return MKBENCH_ROPE_UNSCALED;
  return scaling == RopeScaling::kLinear ? MKBENCH_ROPE_LINEAR : MKBENCH_ROPE_LLAMA3;
}

int32_t abi_activation(Activation activation) {
  switch (activation) {
    case Activation::kSilu:
      return MKBENCH_SILU;
    case Activation::kGeluTanh:
      return MKBENCH_GELU_TANH;
  }
  return -1;
}

}  // namespace

PluginModel::PluginModel(const ModelWeights& weights, const std::vector<mkbench_tensor>& tensors)
    : folder_(weights.folder),
      config_(folder_.empty() ? config_text(weights.config)
                              : read_small_file(weights.folder / "config.json", kMaxConfigBytes)) {
  const ModelShape& s = weights.config.shape;
  const Rope& rope = weights.config.rope;
  record_ = {.size = sizeof record_,
             .hidden = s.hidden,
             .intermediate = s.intermediate,
             .layers = s.layers,
             .heads = s.heads,
             .kv_heads = s.kv_heads,
             .head_dim = s.head_dim,
             .vocab = s.vocab,
             .tied = weights.config.tie_word_embeddings ? 1 : 0,
             .qk_norm = s.qk_norm ? 1 : 0,
             .qkv_bias = s.qkv_bias ? 1 : 0,
             .rms_norm_eps = weights.config.rms_norm_eps,
             .rope_theta = rope.theta,
             .rope_factor = rope.factor,
             .rope_low_freq_factor = rope.low_freq_factor,
             .rope_high_freq_factor = rope.high_freq_factor,
             .rope_scaling = abi_scaling(rope.scaling),
             .rope_original_positions = rope.original_positions,
             .norm_offset = s.norm_offset,
             .activation = abi_activation(s.activation),
             .embedding_multiplier = s.embedding_multiplier == 1 ? 0 : s.embedding_multiplier};
  for (const mkbench_tensor& tensor : tensors) tensors_.push_back(&tensor);
}

mkbench_open PluginModel::arguments() const {
  mkbench_open open{};
  open.size = sizeof open;
  open.tensor_count = static_cast<uint32_t>(tensors_.size());
  open.tensors = tensors_.data();
  open.model = record_.heads > 0 ? &record_ : nullptr;  // an outline has none
  open.config_json = config_.c_str();
  open.folder = folder_.empty() ? nullptr : folder_.c_str();
  return open;
}

}  // namespace mkbench
