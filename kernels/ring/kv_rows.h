// Host functions that read, write, poison and checksum rows of the ring megakernel's KV cache. All
// but poison_rows() are synchronous; all throw Error(kCuda).
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/ring/layout.h"
#include "references/base/bf16.h"

namespace mkbench::ring {

// Cache in device memory: (layers, kv_heads) pieces of kv_head_bytes(max_context), see kv_offset().
struct KvCache {
  char* data;
  int layers;
  int max_context;
  size_t bytes() const {
    return static_cast<size_t>(layers) * kGroups * kv_head_bytes(max_context);
  }
};

// Fills all rows at and above `position` with NaN, to the end of the last round of 1024 positions.
void poison_rows(const KvCache& kv, int position);

// A checksum of rows [0, positions) of all heads, which depends on every element and its place.
// Only comparable between caches of the same layers and max_context.
uint64_t kv_checksum(const KvCache& kv, int positions);

// K then V of one position over all kv heads, [2 * kv_width].
std::vector<float> read_row(const KvCache& kv, int layer, int position);

// Rows in device memory, K and V of shape (layers, kv_heads, source_rows, head_dim). write_rows()
// copies the first `positions` of them to rows [first, first + positions) of the cache.
struct RowSource {
  const Bf16* k;
  const Bf16* v;
  int source_rows;
};
void write_rows(const KvCache& kv, const RowSource& from, int first, int positions);

// The largest |k| (Euclidean length) of rows [0, positions), shape (layers, kv_heads); 0 without
// rows. The result has the same bits in any order of rows; NaN when a key has a NaN.
std::vector<float> key_maxima(const KvCache& kv, int positions);

}  // namespace mkbench::ring
