// A tile of a matrix-vector product: the block loads its weight rows into registers before the
// activations exist.
#pragma once

#include "kernels/plain/block.cuh"

namespace mkbench::plain {

// kTileRows rows of kCols bf16 weights, each row cut in kSplit segments; a warp holds kTileRows *
// kSplit / kWarps segments. A phase calls load() before its wait, so that the weights are under way
// while the exchange completes.
template <int kCols, int kSplit, int kTileRows>
struct TileMatvec {
  static constexpr int kGroups = kWarps / kSplit;
  static constexpr int kRows = kTileRows / kGroups;  // rows of which a warp holds a segment
  static constexpr int kSegment = kCols / kSplit;
  static constexpr int kChunks = ceil_div(kSegment, 256);  // 32 lanes x 8 weights
  static_assert(kTileRows % kGroups == 0 && kSegment % 8 == 0 && kCols % kSplit == 0);
  static_assert(kTileRows * kSplit <= 96, "Shared::row_sums");

  Thread me;
  uint4 weights[kRows][kChunks];

  __device__ __forceinline__ int segment() const { return me.warp % kSplit; }
  __device__ __forceinline__ int tile_row(int i) const { return me.warp / kSplit + i * kGroups; }
  __device__ __forceinline__ bool active(int chunk) const {
    return kSegment % 256 == 0 || chunk * 256 + me.lane * 8 < kSegment;
  }

  // row(t) returns the first weight of tile row t, or null when the block has no such row.
  template <typename Row>
  __device__ __forceinline__ void load(Row row) {
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const unsigned short* from = row(tile_row(i));
      const unsigned short* at = from + segment() * kSegment + me.lane * 8;
#pragma unroll
      for (int c = 0; c < kChunks; ++c) {
        weights[i][c] = make_uint4(0, 0, 0, 0);
        if (from != nullptr && active(c)) weights[i][c] = ptx::load_weights(at + c * 256);
      }
    }
  }

  // Dot products by fp32 FMA with the vector in `activations` (kCols fp32 elements, in the order of
  // activation_index()). The result of tile row t, segment g goes to row_sums[t * kSplit + g]; the
  // caller must synchronise the block before reading it.
  __device__ __forceinline__ void dot(const float4* activations, float* row_sums) const {
    float sums[kRows] = {};
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      const int octet = (segment() * kSegment + c * 256) / 8 + me.lane;
      if (!active(c)) continue;
      const float4 a = activations[octet], b = activations[octet + kCols / 8];
#pragma unroll
      for (int i = 0; i < kRows; ++i) sums[i] = dot_octet(weights[i][c], a, b, sums[i]);
    }
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const float sum = warp_sum(sums[i]);
      if (me.lane == 0) row_sums[tile_row(i) * kSplit + segment()] = sum;
    }
  }

  static __device__ __forceinline__ float dot_octet(uint4 w, float4 a, float4 b, float sum) {
    sum = fmaf(low_bf16(w.x), a.x, sum);
    sum = fmaf(high_bf16(w.x), a.y, sum);
    sum = fmaf(low_bf16(w.y), a.z, sum);
    sum = fmaf(high_bf16(w.y), a.w, sum);
    sum = fmaf(low_bf16(w.z), b.x, sum);
    sum = fmaf(high_bf16(w.z), b.y, sum);
    sum = fmaf(low_bf16(w.w), b.z, sum);
    return fmaf(high_bf16(w.w), b.w, sum);
  }
};

// Runs a phase's work units (rows, or pairs of rows) through tiles of kTileUnits. The caller has
// loaded the first tile; more follow only where the grid has fewer blocks than the tiles were made
// for. row(first, t) returns the first weight of tile row t of the tile that starts at unit
// `first`, or null. In finish(first, count) warp 0 turns row_sums into the results of units [first,
// first + count).
template <int kTileUnits, typename S, typename Tile, typename Row, typename Finish>
__device__ __forceinline__ void block_matvec(Shared<S>& s, Tile& tile, int units, Row row,
                                             Finish finish) {
#pragma unroll 1
  for (int first = 0;; first += kTileUnits) {
    tile.dot(s.activations, s.row_sums);
    __syncthreads();
    if (tile.me.warp == 0) finish(first, min(kTileUnits, units - first));
    if (first + kTileUnits >= units) return;
    tile.load([&](int t) { return row(first + kTileUnits, t); });
    __syncthreads();
  }
}

}  // namespace mkbench::plain
