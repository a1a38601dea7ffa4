// Which worker works on which range: pure functions of the worker's index, the same on host and
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

// The range of worker `index` when [0, total) is split over `parts` workers. Every element is in
// exactly one range; the ranges' sizes differ by at most one.
MKBENCH_HD constexpr Range partition(int total, int parts, int index) {
  const int base = total / parts;
  const int rest = total % parts;
  const int begin = index * base + (index < rest ? index : rest);
  return {begin, begin + base + (index < rest ? 1 : 0)};
}

// The number of blocks (splits) that share one kv head's context in decode attention. Combining
// results costs more than it saves for short contexts, so there is at most one split for every
// kMinPositionsPerSplit positions or part of them, and at most blocks / kv_heads (or 1) splits.
inline constexpr int kMinPositionsPerSplit = 64;
inline constexpr int kMaxSplits = 32;
MKBENCH_HD constexpr int attention_splits(int context, int kv_heads, int blocks) {
  const int by_grid = blocks / kv_heads > 0 ? blocks / kv_heads : 1;
  const int by_context = (context + kMinPositionsPerSplit - 1) / kMinPositionsPerSplit;
  const int splits = by_context < by_grid ? by_context : by_grid;
  return splits < kMaxSplits ? splits : kMaxSplits;
}

}  // namespace mkbench
