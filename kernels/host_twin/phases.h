// The phases of a decode step, one function each. An exchange stands between two phases that share
// data.
#pragma once

#include <chrono>
#include <span>

#include "kernels/host_twin/twin_timeline.h"
#include "kernels/host_twin/vector_ops.h"
#include "kernels/host_twin/workspace.h"
#include "kernels/partition.h"
#include "references/model/weights.h"

namespace mkbench::host_twin {

// Read-only during a launch.
struct Model {
  ModelWeights weights;
  float eps = 0;
  const VectorOps* ops = nullptr;
  const ModelShape& shape() const { return weights.config.shape; }
};

// Arguments of one launch: `steps` tokens from `position` on.
struct Launch {
  int position = 0;
  int steps = 0;
  int32_t first_id = -1;
  const int32_t* inputs = nullptr;  // null, or ids of steps 1 .. steps - 1 (inputs[0] is not read)
  const Bf16* vectors = nullptr;    // null, or [steps, hidden] in place of embedding rows
  bool lm_head = true;              // prefill leaves it out
  float* logits_out = nullptr;      // null, or [steps, vocab]
  float* hidden_out = nullptr;      // null, or [steps, hidden] after the final norm
  int32_t* tokens_out = nullptr;    // [steps], with lm_head only
  std::chrono::steady_clock::time_point* step_ends = nullptr;  // [steps]
  TwinTimeline* timeline = nullptr;                            // null: none is recorded
  int32_t* position_word = nullptr;                            // block 0 keeps its position here
};

// One logical block's view of the grid.
struct Block {
  int index = 0;
  int blocks = 1;
  const Model* model = nullptr;
  const Launch* launch = nullptr;
  const RopeTable* rope = nullptr;
  KvCache* kv = nullptr;
  SharedScratch* shared = nullptr;
  BlockScratch local;
};

enum class Head { kQuery, kKey };

// The mathematics of a decoder layer: Qwen3's, and what a ModelShape can ask for instead. Every
// block calls every `phase_` function. The protected functions are what the phases consist of; faults.cpp
// overrides functions of both kinds.
class Phases {
 public:
  virtual ~Phases() = default;

  // Computes x = vector if given, else E[id] times the embedding multiplier, in every block; NaN for
  //          id = -1, the greedy id of NaN logits.
  // Writes   h (hidden): the block's own rows.
  // Needs no exchange: until h is next exchanged, a block reads only its own rows of it.
  virtual void phase_embed(Block& b, int32_t id, const Bf16* vector);

  // Computes qkv = [Wq; Wk; Wv] RMSNorm(h), plus the biases if there are any, with x of phase_embed
  //          as h in layer 0.
  // Reads    h (hidden).
  // Writes   qkv (qkv_width), before QK-norm and RoPE.
  // A block takes a range of the rows of q | k | v.
  void phase_qkv(Block& b, int layer);

  // Computes softmax(q K^T / sqrt(head_dim)) V of a range of positions, as partial maximum, sum and
  //          numerators.
  // Reads    qkv (qkv_width); K and V rows (context, head_dim).
  // Writes   K and V row (head_dim) of this position; partial_max, _sum (heads, splits), partial_v
  //          (heads, splits, head_dim).
  // A block takes work items (kv head, split); the item of the newest position writes the KV row.
  void phase_attention(Block& b, int layer, int position);

  // Computes h += Wo attention, where attention merges the partials of each head.
  // Reads    partial_max, _sum, _v.
  // Writes   h (hidden).
  // A block merges the partials of all heads and takes a range of the rows of h.
  void phase_o_proj(Block& b, int layer, int position);

  // Computes act = activation(Wgate x) * (Wup x), x = RMSNorm(h).
  // Reads    h (hidden).
  // Writes   act (intermediate).
  // A block takes a range of the rows of Wgate and Wup.
  virtual void phase_gate_up(Block& b, int layer);

  // Computes h += Wdown act.
  // Reads    act (intermediate).
  // Writes   h (hidden), and a copy of it for Engine::hidden().
  // A block takes a range of the rows of h.
  virtual void phase_down(Block& b, int layer);

  // Computes logits = Whead RMSNorm(h), and the best of the block's rows.
  // Reads    h (hidden).
  // Writes   best (blocks); logits_out (vocab) and hidden_out (hidden), RMSNorm(h): both may be null.
  // A block takes a range of the rows of the vocabulary, and of hidden_out.
  void phase_lm_head(Block& b, float* logits_out, float* hidden_out);

  // After the LM head's exchange: the greedy id of the grid, the lowest among equals; -1 when any
  // logit is NaN.
  virtual int32_t block_reduce_best(Block& b);

 protected:
  // y[r] = w[r] x for `rows` rows of `cols` columns.
  virtual void matvec(const Block& b, const Bf16* w, int rows, int cols, const float* x, float* y);
  // A projection within a layer: rows `range` of w times x, plus the bias if it is not empty, to
  // y[0 ..).
  virtual void project(const Block& b, const Matrix& w, Range range, const float* x, float* y,
                       const Matrix& bias = {});
  // out[c] = x[c] / rms(x) * (weight[c] + norm_offset); x and out may be the same.
  virtual void rms_norm(const Block& b, const float* x, const Matrix& weight, float* out);
  // RoPE of one head: rotates the pairs (i, i + head_dim / 2) by the angles of a position.
  virtual void rotate(const Block& b, int position, float* head);
  // QK-norm and RoPE of one query or key head.
  virtual void prepare_head(const Block& b, Head kind, const float* raw, int layer, int position,
                            float* out);
  // Writes K and V of this position for one kv head to the cache.
  virtual void write_kv_row(Block& b, int layer, int kv_head, int position);
  // A value as the KV cache holds it.
  virtual Bf16 cached(float x) { return to_bf16(x); }
  // Positions that attention reads at `position`: all up to and including it.
  virtual int attended_positions(const Block&, int position) { return position + 1; }
  // scores[i] = K row (from + i) times q.
  virtual void score(const Block& b, int layer, int kv_head, int from, int count, const float* q,
                     float* scores);
  // The running maximum after a tile of scores; the softmax weights are relative to it.
  virtual float running_maximum(float before, const float* scores, int count);
  // v_sums += weights[i] * V row (from + i).
  virtual void add_values(const Block& b, int layer, int kv_head, int from, int count,
                          float* weights, float* v_sums);
  // Merges the partials of one head.
  virtual void combine_head(const Block& b, int head, int splits, float* out);
  // Adds w x to h, in the block's rows.
  virtual void block_add_to_residual(Block& b, const Matrix& w, const float* x);
  virtual float exponential(float x);
  virtual float activate(const Block& b, float x);
  // The rows of the vocabulary that the block scores, and their logits.
  virtual Range head_rows(const Block& b);
  virtual void head_logits(Block& b, Range rows);
  // The best logit among `rows`; NaN and id -1 if one of them is NaN.
  virtual Best best_of(const float* logits, Range rows);
  // Whether `a` wins against `other`: larger, or as large with a lower id.
  virtual bool better(Best a, Best other);
  // The id of the best of all blocks' best logits; -1 when one of them is NaN.
  int32_t greedy_id(std::span<const Best> winners);

 private:
  void attend(Block& b, int layer, int kv_head, Range range, const float* q, int head, int split);
};

}  // namespace mkbench::host_twin
