// A decoder's forward pass op by op in libtorch, with its weights and KV cache, shared by the
// baselines of this folder. For .cpp files of this folder only, which include ATen before this
// header, so that no other file includes libtorch.
#pragma once

#include <atomic>
#include <cstdint>
#include <limits>
#include <vector>

#include "baselines/eager.h"
#include "references/model/weights.h"

namespace mkbench {

// Weights of norms are fp32 where ModelShape::norm_offset, which they include, is not 0.
struct LayerTensors {
  at::Tensor input_norm, post_attention_norm;  // [hidden]
  at::Tensor q_proj, k_proj, v_proj, o_proj;   // [out, in]
  at::Tensor q_norm, k_norm;                   // [head_dim]; undefined without QK-norm
  at::Tensor qkv_bias;                         // [qkv_width]; undefined without biases
  at::Tensor gate_proj, up_proj, down_proj;    // [out, in]
  at::Tensor k_cache, v_cache;                 // [1, kv_heads, max_context, head_dim]
  // With EagerOptions::static_steps(): matrices of the same input, concatenated; the matrices above
  // are then views of these. Else undefined.
  at::Tensor qkv_proj, gate_up_proj;
};

// The tensors of a model on libtorch's device.
struct ModelTensors {
  ModelShape shape;
  double eps;              // of the norms
  double scaling;          // factor of attention's scores
  at::TensorOptions real;  // the model's dtype and device
  at::Tensor embed, final_norm, lm_head;
  at::Tensor inv_freq;  // fp32 [head_dim / 2]
  std::vector<LayerTensors> layers;

  // Rows of the embedding, in the model's dtype, times the model's multiplier.
  at::Tensor scaled(const at::Tensor& rows) const;
  at::Tensor activate(const at::Tensor& gate) const;

  // Added to the score of a masked row: the lowest finite value of the dtype.
  double masked_score() const {
    return real.dtype() == at::kFloat ? double{std::numeric_limits<float>::lowest()}
                                      : double{std::numeric_limits<c10::BFloat16>::lowest()};
  }
};

// Every method may throw libtorch's exceptions; the caller holds the InferenceMode and device
// guards. Rows of the KV caches at and above position() are unspecified.
class EagerModel : public ModelTensors {
 public:
  EagerModel(const ModelWeights& weights, const EagerOptions& options);
  EagerModel(const EagerModel&) = delete;
  EagerModel& operator=(const EagerModel&) = delete;

  // ids int64 [1, rows] on the model's device -> hidden state [1, rows, hidden] before the final
  // norm. Appends `rows` KV rows; the caller has checked ids and room. keep_hidden: hidden_states
  // then has the state after each layer.
  at::Tensor forward(const at::Tensor& ids, bool keep_hidden);
  // forward() with vectors [1, rows, hidden] of the model's dtype in place of embedding rows.
  at::Tensor forward_vectors(const at::Tensor& vectors, bool keep_hidden);
  // Hidden state [1, 1, hidden] -> hidden state after the final norm, [1, 1, hidden].
  at::Tensor normed(const at::Tensor& hidden) const;
  // Hidden state [1, 1, hidden] -> logits [vocab], in fp32 with EagerOptions::head_fp32.
  at::Tensor head(const at::Tensor& hidden) const;
  // A checksum over the K and V rows below `rows`, of all layers.
  uint64_t kv_checksum(int rows) const;

  // KV rows written; the caller may truncate. position() and layer() are readable from any thread.
  int position() const { return position_; }
  void set_position(int position) { position_ = position; }
  // The layer whose operators are being issued, or -1.
  int layer() const { return layer_; }

  // Hidden states after each layer of the last forward(), [1, rows, hidden] each; empty if that ran
  // without keep_hidden, or if the owner has cleared them.
  std::vector<at::Tensor> hidden_states;

 private:
  // cos and sin of one forward pass, [1, 1, rows, head_dim] in the model's dtype.
  struct Rotary {
    at::Tensor cos, sin;
    at::Tensor apply(const at::Tensor& x) const;
  };

  at::Tensor load(const Matrix& m, bool is_vector) const;
  at::Tensor load_norm(const Matrix& m) const;
  LayerTensors load_layer(const LayerWeights& w) const;
  Rotary rotary(int64_t first, int64_t rows) const;
  at::Tensor causal_mask(int64_t first, int64_t rows) const;
  at::Tensor attention(LayerTensors& layer, const at::Tensor& x, int64_t first, const Rotary& r,
                       const at::Tensor& mask) const;

  ModelWeights weights_;  // keeps aliased CPU weights alive
  EagerOptions options_;
  bool drops_newest_row_;  // PlantedFault::kCacheLength is planted
  std::atomic<int> position_{0}, layer_{-1};
};

// Value of unwritten KV rows: NaN, so that reading one shows in the results; 0 with
// EagerOptions::static_steps(), which read such rows and mask them.
double unwritten_row(const EagerOptions& options);

}  // namespace mkbench
