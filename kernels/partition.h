// Who works on what: pure maps from a worker's index to a contiguous range, the same on host and
// device.
#pragma once

#ifdef __CUDACC__
#define MKBENCH_HD __host__ __device__ __forceinline__
#else
#define MKBENCH_HD inline
#endif

namespace mkbench {

struct Range {
  int begin;
  int end;
  MKBENCH_HD constexpr int size() const { return end - begin; }
};

// Splits [0, total) over `parts` workers: every index in exactly one range, sizes differ by one at
// most.
MKBENCH_HD constexpr Range partition(int total, int parts, int index) {
  const int base = total / parts;
  const int rest = total % parts;
  const int begin = index * base + (index < rest ? index : rest);
  return {begin, begin + base + (index < rest ? 1 : 0)};
}

// Blocks that share one kv head's context in decode attention. Short contexts are not worth a
// combine: a split takes at least kMinPositionsPerSplit positions, and never more than the grid has
// blocks for.
inline constexpr int kMinPositionsPerSplit = 64;
inline constexpr int kMaxSplits = 32;
MKBENCH_HD constexpr int attention_splits(int context, int kv_heads, int blocks) {
  const int by_grid = blocks / kv_heads > 0 ? blocks / kv_heads : 1;
  const int by_context = (context + kMinPositionsPerSplit - 1) / kMinPositionsPerSplit;
  const int splits = by_context < by_grid ? by_context : by_grid;
  return splits < kMaxSplits ? splits : kMaxSplits;
}

}  // namespace mkbench
