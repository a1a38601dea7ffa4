#include "kernels/device_model.h"

#include <cmath>
#include <vector>

#include "kernels/host_copies.h"
#include "references/model/rope.h"
#include "references/model/weights.h"

namespace mkbench {
namespace {

using Copies = std::vector<HostCopy>;

// Allocates memory for `m` and appends the copy that will fill it to `copies`.
DeviceBuffer<Bf16> add(const Matrix& m, Copies& copies) {
  DeviceBuffer<Bf16> buffer(m.size());
  copies.push_back({buffer.get(), m.data, m.bytes()});
  return buffer;
}

DeviceBuffer<Bf16> add_layers(const ModelWeights& weights, PlantedFault fault, Copies& copies) {
  const ModelShape& shape = weights.config.shape;
  const LayerLayout at = layer_layout(shape);
  DeviceBuffer<Bf16> slabs(at.stride * weights.layers.size());
  MKBENCH_CUDA(cudaMemset(slabs.get(), 0, slabs.bytes()));  // zeroes the padding between slabs
  const bool swap = fault == PlantedFault::kSwapGateUp;
  Bf16* slab = slabs.get();
  const auto copy_in = [&](Bf16* to, const Matrix& from) {
    if (from.size() > 0) copies.push_back({to, from.data, from.bytes()});
  };
  for (const LayerWeights& w : weights.layers) {
    copy_in(slab + at.qkv, w.q_proj);
    copy_in(slab + at.qkv + w.q_proj.size(), w.k_proj);
    copy_in(slab + at.qkv + w.q_proj.size() + w.k_proj.size(), w.v_proj);
    copy_in(slab + at.o, w.o_proj);
    copy_in(slab + at.gate, swap ? w.up_proj : w.gate_proj);
    copy_in(slab + at.up, swap ? w.gate_proj : w.up_proj);
    copy_in(slab + at.down, w.down_proj);
    copy_in(slab + at.input_norm, w.input_layernorm);
    copy_in(slab + at.post_norm, w.post_attention_layernorm);
    copy_in(slab + at.q_norm, w.q_norm);
    copy_in(slab + at.k_norm, w.k_norm);
    copy_in(slab + at.bias, w.q_bias);
    copy_in(slab + at.bias + w.q_bias.size(), w.k_bias);
    copy_in(slab + at.bias + w.q_bias.size() + w.k_bias.size(), w.v_bias);
    slab += at.stride;
  }
  return slabs;
}

// Angles are fp32 products, because the model was trained with those; their cosines and sines are
// computed in double and rounded once.
DeviceBuffer<RopePair> upload_rope(const ModelConfig& config, int max_context, PlantedFault fault) {
  const std::vector<float> frequency =
      inverse_frequencies(effective_rope(config.rope, fault), config.shape.head_dim);
  std::vector<RopePair> table;
  table.reserve(static_cast<size_t>(max_context) * frequency.size());
  for (int position = 0; position < max_context; ++position) {
    for (const float f : frequency) {
      const double angle = effective_angle(f, position, fault);
      table.push_back({static_cast<float>(std::cos(angle)), static_cast<float>(std::sin(angle))});
    }
  }
  DeviceBuffer<RopePair> buffer(table.size());
  MKBENCH_CUDA(cudaMemcpy(buffer.get(), table.data(), buffer.bytes(), cudaMemcpyHostToDevice));
  return buffer;
}

}  // namespace

int64_t device_model_bytes(const ModelConfig& config, int max_context) {
  const ModelShape& s = config.shape;
  const int64_t layers = static_cast<int64_t>(layer_layout(s).stride) * s.layers;
  const int64_t tables = (config.tie_word_embeddings ? 1 : 2) * s.embedding_parameters();
  const int64_t rope = static_cast<int64_t>(max_context) * (s.head_dim / 2);
  return 2 * (layers + tables + s.hidden) + static_cast<int64_t>(sizeof(RopePair)) * rope;
}

DeviceModel upload_model(const ModelWeights& weights, int max_context, PlantedFault fault) {
  DeviceModel model;
  Copies copies;
  model.layers = add_layers(weights, fault, copies);
  model.embed = add(weights.embed_tokens, copies);
  if (weights.lm_head.data != weights.embed_tokens.data) model.head = add(weights.lm_head, copies);
  model.final_norm = add(weights.final_norm, copies);
  copy_to_device(copies);
  model.rope = upload_rope(weights.config, max_context, fault);
  return model;
}

}  // namespace mkbench
