// What a bug puts in place of parts of the truth's step. For .cpp files of this folder only,
// which include ATen first, as eager_model.h.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "baselines/eager_model.h"

namespace mkbench {

enum class NormOf { kAttention, kMlp, kHead, kQueries, kKeys };

// The parts of a layer. The truth: a = add(h, attention(norm(h))); add(a, mlp(mlp_norm(a))).
struct LayerParts {
  std::function<at::Tensor(const at::Tensor&)> norm, attention, mlp_norm, mlp;
  std::function<at::Tensor(const at::Tensor&, const at::Tensor&)> add;
};

// q, k and v of a layer behind QK-norm and RoPE, [runs, heads, rows, head_dim].
struct Heads {
  at::Tensor q, k, v;
  at::Tensor k_before, v_before;                      // of the layer before; undefined in layer 0
  const LayerTensors& weights;                        // as the checkpoint has them
  std::function<at::Tensor(const at::Tensor&)> turn;  // RoPE of a key
  double eps;
};

// A function that is not set changes nothing. Those of layers apply to one layer alone if the
// deviation says so. i and j: numbers of rows, [1, 1, rows, 1] and [1, 1, 1, rows]; `decoded`: the
// first row that decode() computed, of each run.
struct Hooks {
  using Tensor = at::Tensor;
  std::function<void(std::vector<int32_t>& ids, int& prompt)> ids{};  // of a run
  std::function<Tensor(const ModelTensors&)> embedding{};             // the table
  double embedding_factor = 1;

  // RoPE
  std::function<void(Rope&)> rope{};
  std::function<Tensor(const Tensor& exponents)> exponents{};  // 2i / head_dim
  std::function<Tensor(const Tensor& found, const Tensor& unscaled)> frequencies{};
  // at: [1, rows]; decoded, and the first row of the call whose steps are compared: [runs, 1]
  std::function<Tensor(const Tensor& at, const Tensor& decoded, const Tensor& call)> positions{};
  double query_shift = 0;
  std::function<Tensor(const Tensor& x, const Tensor& cos, const Tensor& sin, bool queries)> turn{};

  // Layers
  std::function<void(LayerTensors&, const ModelTensors&, int layer)> weights{};
  std::function<Tensor(const Tensor& x, const Tensor& weight, double eps, NormOf)> norm{};
  std::function<Tensor(const Tensor& h, const LayerParts&)> layer{};
  std::function<Tensor(const Tensor& gate, const Tensor& up)> product{};  // before down_proj

  // Attention
  bool norms_late = false;  // QK-norm behind RoPE
  std::function<void(Heads&)> heads{};
  std::function<int64_t(int64_t head, bool of_values)> kv_head{};
  double score_factor = 1;
  std::function<Tensor(const Tensor& i, const Tensor& j, const Tensor& decoded)> seen{};
  std::function<Tensor(const Tensor& i, const Tensor& decoded)> zero_row{};  // who sees one more
  std::function<Tensor(const Tensor& scores)> softmax{};

  // Head
  std::function<Tensor(const ModelTensors&)> head{};     // the matrix
  std::function<Tensor(const Tensor& logits)> logits{};  // [steps, vocab]
  int rows_late = 0;                                     // logits are those of so many rows before
};

// RoPE of the pairs (i, i + n) of the first 2n dimensions of x; n: the last dimension of cos.
at::Tensor turn_halves(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin);
// x / sqrt(mean of squares + eps) * weight
at::Tensor rms_normed(const at::Tensor& x, const at::Tensor& weight, double eps);

}  // namespace mkbench
