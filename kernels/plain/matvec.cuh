// Matrix-vector products in tiles: a block loads a tile's weight rows into registers, the first tile's
// before the activations exist.
#pragma once

#include "kernels/plain/block.cuh"

namespace mkbench::plain {

// Weights that a warp reads at once: 32 lanes x 8.
inline constexpr int kChunk = 256;
// Most chunks a warp holds: 48 of a thread's 128 registers, 96 KB in flight on a multiprocessor.
inline constexpr int kMostChunks = 12;
// Tiles are sized for the rows that a block has in a grid of this size; with fewer blocks, each has more tiles.
inline constexpr int kUsualBlocks = 128;

// How a block deals a tile of rows to its warps.
struct TilePlan {
  int split;      // warps that share a row, a segment each
  int warp_rows;  // rows of which a warp holds a segment
};

// The plan for a matrix whose rows are divided among all blocks. As few warps as possible share a
// row, but two segments must fit into a warp's registers, and every warp should have a row.
constexpr TilePlan tile_plan(int rows, int cols, int warps) {
  const int chunks = ceil_div(cols, kChunk), block_rows = ceil_div(rows, kUsualBlocks);
  int split = 1;
  while (split < warps && 2 * ceil_div(chunks, split) > kMostChunks) split *= 2;
  while (warps / split > block_rows && 2 * split <= chunks) split *= 2;
  const int wanted = ceil_div(block_rows, warps / split);
  // If a block has several tiles, or warps share a row, a warp holds fewer chunks: CUDA 12.8 spills otherwise.
  const bool one_tile = wanted <= kMostChunks / ceil_div(chunks, split);
  const int most = one_tile && split == 1 ? kMostChunks : 8;
  const int held = most / ceil_div(chunks, split);
  return {split, held < wanted ? held : wanted};
}

// sum + the dot product of 8 weights with the activations a and b.
__device__ __forceinline__ float dot_octet(uint4 w, float4 a, float4 b, float sum) {
  sum = fmaf(low_bf16(w.x), a.x, sum);
  sum = fmaf(high_bf16(w.x), a.y, sum);
  sum = fmaf(low_bf16(w.y), a.z, sum);
  sum = fmaf(high_bf16(w.y), a.w, sum);
  sum = fmaf(low_bf16(w.z), b.x, sum);
  sum = fmaf(high_bf16(w.z), b.y, sum);
  sum = fmaf(low_bf16(w.w), b.z, sum);
  return fmaf(high_bf16(w.w), b.w, sum);
}

// A tile of a matrix of kMatrixRows (in the whole grid) x kCols bf16 weights, each row cut in kSplit
// segments. A phase calls load() before its wait, so that the weights are under way while the
// exchange completes.
template <typename S, int kMatrixRows, int kCols>
struct TileMatvec {
  static constexpr TilePlan kPlan = tile_plan(kMatrixRows, kCols, kWarps<S>);
  static constexpr int kSplit = kPlan.split, kRows = kPlan.warp_rows;
  static constexpr int kGroups = kWarps<S> / kSplit;
  static constexpr int kTileRows = kRows * kGroups;
  static constexpr int kSegment = kCols / kSplit;
  static constexpr int kChunks = ceil_div(kSegment, kChunk);
  static_assert(kRows >= 1 && kRows * kChunks <= kMostChunks, "a warp's registers");
  static_assert(kCols % (8 * kSplit) == 0, "segments are read 16 bytes at a time");
  static_assert(kTileRows * kSplit <= kMostRowSums, "Shared::row_sums");

  Thread me;
  uint4 weights[kRows][kChunks];

  __device__ __forceinline__ int segment() const { return me.warp % kSplit; }
  __device__ __forceinline__ int tile_row(int i) const { return me.warp / kSplit + i * kGroups; }
  __device__ __forceinline__ bool active(int chunk) const {
    return kSegment % kChunk == 0 || chunk * kChunk + me.lane * 8 < kSegment;
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
        if (from != nullptr && active(c)) weights[i][c] = ptx::load_weights(at + c * kChunk);
      }
    }
  }

  // Dot products by fp32 FMA with the vector in `activations` (kCols fp32 elements, in the order of
  // activation_index()). The result of tile row t, segment g goes to row_sums[t * kSplit + g]; the
  // caller must synchronise the block before reading it.
  __device__ __forceinline__ void dot(const float4* activations, float* row_sums) const {
    const int lane = this_thread().lane;  // hidden from the compiler: it would spill on sm_80
    float sums[kRows] = {};
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      const int octet = (segment() * kSegment + c * kChunk) / 8 + lane;
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
};

// Adds the segments of tile row t to `sum`, in order.
template <typename Tile>
__device__ __forceinline__ float add_segments(float sum, const float* row_sums, int t) {
#pragma unroll
  for (int g = 0; g < Tile::kSplit; ++g) sum += row_sums[t * Tile::kSplit + g];
  return sum;
}

// Runs a phase's work units (rows, or pairs of rows) through tiles of kTileUnits. The caller has
// loaded the first tile. row(first, t) returns the first weight of tile row t of the tile that
// starts at unit `first`, or null. In finish(row_sums, first, count) warp 0 turns row_sums into the
// results of units [first, first + count), while the other warps go on with the next tile: they are
// at most one tile ahead, because each tile ends with a barrier; so row_sums has two halves.
template <int kTileUnits, typename S, typename Tile, typename Row, typename Finish>
__device__ __forceinline__ void block_matvec(Shared<S>& s, Tile& tile, int units, Row row,
                                             Finish finish) {
  int half = 0;
#pragma unroll 1
  for (int first = 0;; first += kTileUnits, half ^= 1) {
    float* row_sums = s.row_sums[half];
    const bool more = first + kTileUnits < units;
    auto next = [&](int t) { return row(first + kTileUnits, t); };
    tile.dot(s.activations, row_sums);
    __syncthreads();
    if (tile.me.warp == 0) finish(row_sums, first, min(kTileUnits, units - first));
    if (!more) return;
    tile.load(next);
  }
}

}  // namespace mkbench::plain
