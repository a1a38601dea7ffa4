// The tensors of a Qwen3 model on libtorch's device: what eager_model.cpp makes, and static_step.cpp
// reads. For .cpp files of this folder, which include ATen before it: libtorch's headers stay in them.
#pragma once

#include <limits>
#include <vector>

#include "references/config.h"

namespace mkbench {

struct LayerTensors {
  at::Tensor input_norm, post_attention_norm;  // [hidden]
  at::Tensor q_proj, k_proj, v_proj, o_proj;   // [out, in]
  at::Tensor q_norm, k_norm;                   // [head_dim]
  at::Tensor gate_proj, up_proj, down_proj;    // [out, in]
  at::Tensor k_cache, v_cache;                 // [1, kv_heads, max_context, head_dim]
  // With EagerOptions::static_steps(): the matrices of one input in one piece, of which those above are
  // parts. Else undefined.
  at::Tensor qkv_proj, gate_up_proj;
};

struct ModelTensors {
  ModelShape shape;
  double eps;              // of the norms
  double scaling;          // of attention's scores
  at::TensorOptions real;  // the model's dtype and device
  at::Tensor embed, final_norm, lm_head;
  at::Tensor inv_freq;  // fp32 [head_dim / 2]
  std::vector<LayerTensors> layers;

  // What is added to the score of a row that must not be seen: the lowest finite value of the dtype.
  double masked_score() const {
    return real.dtype() == at::kFloat ? double{std::numeric_limits<float>::lowest()}
                                      : double{std::numeric_limits<c10::BFloat16>::lowest()};
  }
};

}  // namespace mkbench
