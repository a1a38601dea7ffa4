// The phases of a decode step, one function each: what it computes, what it reads and writes, who
// works on what. Between two of them that share data stands an exchange; `phase_` functions are
// called by every block.
#pragma once

#include "kernels/host_twin/vector_ops.h"
#include "kernels/host_twin/workspace.h"
#include "references/engine.h"
#include "references/weights.h"

namespace mkbench::host_twin {

// Read-only during a launch.
struct Model {
  ModelWeights weights;
  float eps = 0;
  PlantedFault fault = PlantedFault::kNone;
  const VectorOps* ops = nullptr;
  const ModelShape& shape() const { return weights.config.shape; }
};

// One logical block's view of the grid.
struct Block {
  int index = 0;
  int blocks = 1;
  int max_context = 0;
  bool decoding = false;  // the launch has an LM head: it is no prefill
  const Model* model = nullptr;
  const RopeTable* rope = nullptr;
  KvCache* kv = nullptr;
  SharedScratch* shared = nullptr;
  BlockScratch local;
};

// x = embedding row of `id`, in every block; its own rows of h as well. Needs no exchange: until h
// is next exchanged, a block reads only its own rows of it. id = -1 (the greedy id of NaN logits)
// embeds as NaN.
void phase_embed(Block& b, int32_t id);

// qkv = [Wq; Wk; Wv] * RMSNorm(h); rows of q | k | v split over the blocks. Layer 0 takes x of
// phase_embed as h.
void phase_qkv(Block& b, int layer);

// Scores, softmax and weighted V over a range of positions, per (kv head, split) item. The item
// that holds the newest position writes the KV row. Partials are combined by the readers.
void phase_attention(Block& b, int layer, int position);

// h += Wo * attention; every block combines the partials of all heads; rows of hidden split.
void phase_o_proj(Block& b, int layer, int position);

// act = silu(Wgate * x) * (Wup * x) with x = RMSNorm(h); rows of intermediate split.
void phase_gate_up(Block& b, int layer);

// h += Wdown * act; rows of hidden split. Keeps a copy of h for localisers.
void phase_down(Block& b, int layer);

// logits = Whead * RMSNorm(h) and the block's best of its rows of the vocabulary; `logits_out` may
// be null.
void phase_lm_head(Block& b, float* logits_out);

// After the LM head's exchange: the grid's greedy id, the lowest index among equals; -1 when any
// logit is NaN.
int32_t block_reduce_best(Block& b);

}  // namespace mkbench::host_twin
