// Which rows of the KV cache a block attends to, and in which order. Loader and consumers both
// compute it from the position alone.
//
// Two modes. Redundant (short contexts): every block of a group reads all rows, in tiles of two
// neighbouring halves, and no partial results are exchanged. Split: member m takes its own tile of
// each round of 1024 positions, and the group's blocks exchange partial results.
#pragma once

#include "kernels/ring/layout.h"

namespace mkbench::ring {

template <bool kSplit>
struct ContextShare {
  int context;  // attention covers rows 0 .. context - 1 and the current position
  int member;

  MKBENCH_HD constexpr int halves() const {
    if (!kSplit) return (context + kHalfTileRows - 1) / kHalfTileRows;
    const int t = tiles();
    return t == 0 ? 0 : 2 * t - (context <= half_position(2 * t - 1) ? 1 : 0);
  }
  MKBENCH_HD constexpr int tiles() const {
    if (!kSplit) return (context + kTileRows - 1) / kTileRows;
    const int first = kHalfTileRows * member;
    return context > first ? (context - 1 - first) / kRoundPositions + 1 : 0;
  }
  // First position of a half tile.
  MKBENCH_HD constexpr int half_position(int half) const {
    if (!kSplit) return kHalfTileRows * half;
    return half * (kRoundPositions / 2) + kHalfTileRows * member;
  }
};

}  // namespace mkbench::ring
