// Qwen3's forward pass op by op in libtorch, with its weights and KV cache, shared by the baselines
// of this folder. at::Tensor is only declared here, so that libtorch's headers stay in the .cpp
// files.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "baselines/eager.h"
#include "references/weights.h"

namespace at {
class Tensor;
}

namespace mkbench {

struct ModelTensors;

// Every method may throw libtorch's exceptions; the caller holds the InferenceMode and device
// guards.
class EagerModel {
 public:
  EagerModel(const ModelWeights& weights, const EagerOptions& options);
  ~EagerModel();
  EagerModel(const EagerModel&) = delete;
  EagerModel& operator=(const EagerModel&) = delete;

  // ids int64 [1, rows] on the model's device -> hidden state [1, rows, hidden] before the final
  // norm. Appends `rows` KV rows; the caller has checked ids and room. keep_hidden: hidden_states()
  // then has the state after each layer.
  at::Tensor forward(const at::Tensor& ids, bool keep_hidden);
  // The same from vectors [1, rows, hidden] of the model's dtype in place of embedding rows.
  at::Tensor forward_vectors(const at::Tensor& vectors, bool keep_hidden);
  // Hidden state [1, 1, hidden] -> the same after the final norm.
  at::Tensor normed(const at::Tensor& hidden) const;
  // Hidden state [1, 1, hidden] -> logits [vocab], in fp32 with EagerOptions::head_fp32.
  at::Tensor head(const at::Tensor& hidden) const;

  // K or V of one layer, [1, kv_heads, max_context, head_dim], rows at and above position()
  // unspecified.
  const at::Tensor& k_cache(int layer) const;
  const at::Tensor& v_cache(int layer) const;
  // A checksum over the K and V rows below `rows`, of all layers.
  uint64_t kv_checksum(int rows) const;
  // Hidden states after each layer of the last forward() with keep_hidden, [1, 1, hidden] each;
  // empty before one.
  std::vector<at::Tensor>& hidden_states();
  // The tensors of which the model consists; they stay where they are.
  const ModelTensors& tensors() const;

  // KV rows written; the caller may truncate. position() and layer() are readable from any thread.
  int position() const { return position_; }
  void set_position(int position) { position_ = position; }
  // The layer whose operators are being issued, or -1.
  int layer() const { return layer_; }

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
  std::atomic<int> position_{0}, layer_{-1};
};

// What KV rows hold that were not written: NaN, so that reading one shows; 0 with
// EagerOptions::static_steps(), which mask them.
double unwritten_row(const EagerOptions& options);

}  // namespace mkbench
