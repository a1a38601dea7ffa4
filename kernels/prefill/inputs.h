// The arguments of the prefill kernels. Shared by host and device.
#pragma once

#include "kernels/weight_layout.h"

namespace mkbench::prefill {

// fp32 values as two bf16 planes: high = bf16(x), low = bf16(x - high).
struct SplitRows {
  unsigned short* high;
  unsigned short* low;
};

// KV cache of the plain megakernel: K and V, each (layers, kv_heads, max_context, head_dim) bf16.
struct PlainKv {
  unsigned short* k;
  unsigned short* v;
  int kv_heads;
  int max_context;
};

// KV cache of the ring megakernel: (layers, kv_heads) pieces of ring::kv_head_bytes(max_context)
// bytes.
struct RingKv {
  static constexpr int kHeadDim = 128;
  char* kv;
  float* key_maxima;  // null, or (layers, kv_heads): largest |k|, updated with new rows
  int kv_heads;
  int max_context;
};

// A matrix product a * weights^T.
struct GemmInput {
  SplitRows a;                    // (rows, depth)
  const unsigned short* weights;  // (columns, depth) bf16
  int rows, depth;
};

struct HeadsInput {
  const float* qkv;              // (rows, qkv_width), raw
  const unsigned short* q_norm;  // (head_dim), or null
  const unsigned short* k_norm;  // (head_dim), or null
  const unsigned short* bias;    // (qkv_width), or null
  const RopePair* rope;          // (.., head_dim / 2), from the first row's position on
  SplitRows query;               // output (rows, q_width), scaled to log2 units
  int rows, heads, kv_heads, head_dim;
  int layer, position;  // position: the first row's
  float eps;
};

struct AttentionInput {
  SplitRows query, out;  // (rows, q_width)
  int rows, heads, kv_heads, head_dim;
  int layer, position;  // position: the first row's
  int context_bias;     // 0; -1 and 1 plant the faults "newest row dropped", "one row too many"
};

}  // namespace mkbench::prefill
