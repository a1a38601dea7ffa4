// Memory of the host twin: KV cache, rotary table, scratch that all blocks share, and scratch of
// one block.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "references/model/weights.h"
#include "references/planted_fault.h"

namespace mkbench::host_twin {

// K (after norm and RoPE) and V of every written position, bf16,
// [layers][kv_heads][max_context][head_dim].
class KvCache {
 public:
  KvCache(const ModelShape& shape, int max_context);

  // The rows of one head from `position` on; they are contiguous.
  Bf16* k(int layer, int kv_head, int position) { return k_.data() + at(layer, kv_head, position); }
  Bf16* v(int layer, int kv_head, int position) { return v_.data() + at(layer, kv_head, position); }

  int max_context() const { return static_cast<int>(max_context_); }

  // Sets rows [from, max_context) of all layers to NaN, so that reading an unwritten row shows in
  // the results.
  void poison(int from);
  // A hash of rows [0, positions) of all layers.
  uint64_t checksum(int positions) const;
  // K, then V, of one position over all kv heads, fp32 [2 * kv_width].
  std::vector<float> row(int layer, int position) const;

 private:
  size_t at(int layer, int kv_head, int position) const {
    const size_t head = static_cast<size_t>(layer) * shape_.kv_heads + kv_head;
    return (head * max_context_ + position) * shape_.head_dim;
  }
  ModelShape shape_;
  size_t max_context_;
  std::vector<Bf16> k_, v_;
};

// Cosines and sines of position * inv_freq, fp32 [positions][head_dim / 2].
class RopeTable {
 public:
  RopeTable(std::vector<float> inverse_frequencies, PlantedFault fault)
      : fault_(fault), inv_freq_(std::move(inverse_frequencies)) {}
  // Makes rows [0, positions) available. Between launches only.
  void extend(int positions);
  const float* cosines(int position) const { return cos_.data() + row(position); }
  const float* sines(int position) const { return sin_.data() + row(position); }

 private:
  size_t row(int position) const { return static_cast<size_t>(position) * inv_freq_.size(); }
  PlantedFault fault_;
  std::vector<float> inv_freq_;
  std::vector<float> cos_, sin_;
};

// The best logit among a block's rows of the LM head.
struct Best {
  float logit;
  int32_t id;  // -1, with a NaN as `logit`, if any logit was NaN
};

// Each range is written in one phase by the block that owns it, and read by all blocks after the
// exchange that ends the phase.
struct SharedScratch {
  SharedScratch(const ModelShape& shape, int blocks);
  void poison();  // sets all values to NaN, ids to -1

  std::vector<float> h;            // [hidden], the residual stream
  std::vector<float> qkv;          // [qkv_width]: q, k, v as projected, before norm and RoPE
  std::vector<float> partial_max;  // [heads][kMaxSplits], largest score of a split
  std::vector<float> partial_sum;  // [heads][kMaxSplits], sum of exp(score - partial_max)
  std::vector<float> partial_v;  // [heads][kMaxSplits][head_dim], sum of exp(score - partial_max) V
  std::vector<float> act;        // [intermediate], activation(gate) * up
  std::vector<float> logits;     // [vocab]
  std::vector<float> hidden;     // [layers][hidden], h after each layer of the last step
  std::vector<Best> best;        // [blocks]
};

// Scratch of one block, which a CUDA block would hold in shared memory.
struct BlockScratch {
  BlockScratch(const ModelShape& shape, int blocks);
  void poison();

  std::vector<float> x;       // [hidden], h or its RMSNorm
  std::vector<float> attn;    // [q_width], combined attention output
  std::vector<float> q;       // [gqa_group][head_dim]
  std::vector<float> k;       // [head_dim]
  std::vector<float> v_sums;  // [head_dim], one query head's running numerators
  std::vector<float> scores;  // [kScoreTile]
  std::vector<float> rows;    // results of the block's own rows; in gate_up, gate's and then up's
};

// Positions whose scores a block holds at once.
inline constexpr int kScoreTile = 64;

}  // namespace mkbench::host_twin
