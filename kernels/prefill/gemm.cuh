// Matrix product on the tensor cores, with fp32 sums.
//   out = a weights^T
// Reads   a (rows, depth) fp32 as two bf16 planes; weights (columns, depth) bf16 row-major.
// Writes  what the Finish type makes of out (rows, columns): StoreRows, AddRows, SwiGluRows.
// A block computes a tile of rows x columns and walks along the depth in stages, which are loaded
// into a ring in shared memory; a warp multiplies each weight that it loads from there with both
// planes. Every element is summed in one fixed order, whatever the number of rows.
#pragma once

#include "kernels/prefill/inputs.h"
#include "kernels/prefill/split.cuh"
#include "kernels/prefill/tiles.h"

namespace mkbench::prefill {

// A block's tile: kRows x kColumns, in stages that are kDepth deep. Each warp computes kWarpRows x
// kWarpColumns. With kGroups = 2, two sets of warps take half of each stage's depth and add their
// sums at the end, which doubles the warps where the grid is too small to fill the GPU.
template <int kRows_, int kColumns_, int kDepth_, int kWarpRows_, int kWarpColumns_, int kGroups_,
          int kStages_, int kBlocks_>
struct GemmTile {
  static constexpr int kRows = kRows_, kColumns = kColumns_, kDepth = kDepth_;
  static constexpr int kWarpRows = kWarpRows_, kWarpColumns = kWarpColumns_;
  static constexpr int kGroups = kGroups_, kStages = kStages_;
  static constexpr int kBlocks = kBlocks_;  // blocks that must fit on a multiprocessor
  static constexpr int kAcross = kColumns / kWarpColumns;
  static constexpr int kGroupWarps = kRows / kWarpRows * kAcross;
  static constexpr int kThreads = 32 * kGroupWarps * kGroups;
  static constexpr int kChunks = kDepth / 8;            // 16-byte pieces of a row
  static constexpr int kSteps = kDepth / 16 / kGroups;  // k16 steps of a warp in a stage
  static constexpr int kPlaneBytes = kRows * kDepth * 2;
  static constexpr int kStageBytes = 2 * kPlaneBytes + kColumns * kDepth * 2;
  static constexpr int kSharedBytes = kStages * kStageBytes;
  static constexpr int kTilesDown = kWarpRows / 16, kTilesAcross = kWarpColumns / 8;
  static constexpr int kRowCopies = kRows * kChunks / kThreads;  // per thread, stage and plane
  static constexpr int kColumnCopies = kColumns * kChunks / kThreads;
  static_assert(kRows * kChunks % kThreads == 0 && kColumns * kChunks % kThreads == 0);
  static_assert(kWarpRows % 16 == 0 && kWarpColumns % 16 == 0 && kDepth % (16 * kGroups) == 0);
  static_assert(kGroups == 1 || kRows * kColumns * 4 <= kSharedBytes);
};

// 64 x 128: QKV (256 blocks for 512 rows of Qwen3-0.6B) and gate/up (384).
using WideTile = GemmTile<64, 128, 32, 32, 64, 1, 4, 3>;
// 64 x 64: the O- and down-projection, which have only `hidden` columns (128 blocks), and a QKV whose
// columns the wide tile does not divide.
using NarrowTile = GemmTile<64, 64, 64, 32, 32, 2, 4, 1>;

// The Finish types. finish() takes two neighbouring results of a row (with kPaired, two of gate and
// two of up); weight_row(n) is the row of the weights that makes column n.
struct StoreRows {  // stores to out (rows, width) fp32
  static constexpr bool kPaired = false;
  float* out;
  int width;
  __device__ __forceinline__ int weight_row(int n) const { return n; }
  __device__ __forceinline__ void finish(int row, int column, float2 x) const {
    *reinterpret_cast<float2*>(out + static_cast<size_t>(row) * width + column) = x;
  }
};

struct AddRows {  // adds to residual (rows, width) fp32; one thread owns each element
  static constexpr bool kPaired = false;
  float* residual;
  int width;
  __device__ __forceinline__ int weight_row(int n) const { return n; }
  __device__ __forceinline__ void finish(int row, int column, float2 x) const {
    float2* at = reinterpret_cast<float2*>(residual + static_cast<size_t>(row) * width + column);
    *at = make_float2(at->x + x.x, at->y + x.y);
  }
};

struct SwiGluRows {  // stores silu(gate) * up to out (rows, units), as two bf16 planes
  static constexpr bool kPaired = true;
  SplitRows out;
  int units;
  __device__ __forceinline__ int weight_row(int n) const { return interleaved_row(n, units); }
  __device__ __forceinline__ void finish(int row, int unit, float2 gate, float2 up) const {
    store_split(out, static_cast<size_t>(row) * units + unit,
                gate.x / (1.0f + __expf(-gate.x)) * up.x, gate.y / (1.0f + __expf(-gate.y)) * up.y);
  }
};

// A thread's copies into the stages. Rows past the end repeat the last one; their sums are not
// used.
template <class Tile>
struct GemmLoader {
  const unsigned short *high, *low, *weights;
  int row_offset[Tile::kRowCopies], column_offset[Tile::kColumnCopies];       // sources, at depth 0
  unsigned row_target[Tile::kRowCopies], column_target[Tile::kColumnCopies];  // bytes in a stage

  template <class Finish>
  __device__ __forceinline__ GemmLoader(const GemmInput& in, const Finish& finish, int first_row,
                                        int first_column, int thread)
      : high(in.a.high), low(in.a.low), weights(in.weights) {
#pragma unroll
    for (int i = 0; i < Tile::kRowCopies; ++i) {
      const int piece = i * Tile::kThreads + thread;
      const int row = piece / Tile::kChunks, chunk = piece % Tile::kChunks;
      row_offset[i] = min(first_row + row, in.rows - 1) * in.depth + chunk * 8;
      row_target[i] = static_cast<unsigned>(chunk_offset<Tile::kChunks>(row, chunk));
    }
#pragma unroll
    for (int i = 0; i < Tile::kColumnCopies; ++i) {
      const int piece = i * Tile::kThreads + thread;
      const int column = piece / Tile::kChunks, chunk = piece % Tile::kChunks;
      column_offset[i] = finish.weight_row(first_column + column) * in.depth + chunk * 8;
      column_target[i] =
          static_cast<unsigned>(2 * Tile::kPlaneBytes + chunk_offset<Tile::kChunks>(column, chunk));
    }
  }

  __device__ __forceinline__ void load(unsigned stage, int depth) const {
#pragma unroll
    for (int i = 0; i < Tile::kRowCopies; ++i) {
      ptx::copy_async(stage + row_target[i], high + row_offset[i] + depth);
      ptx::copy_async(stage + row_target[i] + Tile::kPlaneBytes, low + row_offset[i] + depth);
    }
#pragma unroll
    for (int i = 0; i < Tile::kColumnCopies; ++i) {
      ptx::copy_async(stage + column_target[i], weights + column_offset[i] + depth);
    }
  }
};

// A warp's sums and its place in the block.
template <class Tile>
struct GemmWarp {
  int lane, group, row, column;  // row, column: the warp's first ones inside the tile
  float sums[Tile::kTilesDown][Tile::kTilesAcross][4];

  __device__ __forceinline__ explicit GemmWarp(int thread) {
    const int warp = thread / 32;
    lane = thread % 32;
    group = warp / Tile::kGroupWarps;
    row = warp % Tile::kGroupWarps / Tile::kAcross * Tile::kWarpRows;
    column = warp % Tile::kAcross * Tile::kWarpColumns;
#pragma unroll
    for (int i = 0; i < Tile::kTilesDown; ++i) {
#pragma unroll
      for (int j = 0; j < Tile::kTilesAcross; ++j) {
#pragma unroll
        for (int e = 0; e < 4; ++e) sums[i][j][e] = 0;
      }
    }
  }

  __device__ __forceinline__ void multiply(unsigned stage) {
    const unsigned columns = stage + 2 * Tile::kPlaneBytes;
#pragma unroll
    for (int step = 0; step < Tile::kSteps; ++step) {
      const int chunk = (group * Tile::kSteps + step) * 2;
      uint4 b[Tile::kTilesAcross / 2];
#pragma unroll
      for (int j = 0; j < Tile::kTilesAcross / 2; ++j) {
        b[j] =
            ptx::load_tiles(columns + static_cast<unsigned>(chunk_offset<Tile::kChunks>(
                                          column + j * 16 + b_row(lane), chunk + b_chunk(lane))));
      }
#pragma unroll
      for (int plane = 0; plane < 2; ++plane) {
#pragma unroll
        for (int i = 0; i < Tile::kTilesDown; ++i) {
          const uint4 a = ptx::load_tiles(stage + plane * Tile::kPlaneBytes +
                                          static_cast<unsigned>(chunk_offset<Tile::kChunks>(
                                              row + i * 16 + a_row(lane), chunk + a_chunk(lane))));
#pragma unroll
          for (int j = 0; j < Tile::kTilesAcross / 2; ++j) {
            ptx::mma_k16(sums[i][2 * j], a, b[j].x, b[j].y);
            ptx::mma_k16(sums[i][2 * j + 1], a, b[j].z, b[j].w);
          }
        }
      }
    }
  }

  // Adds the second group's sums to the first group's, through shared memory.
  __device__ __forceinline__ void join_groups(float* shared, int thread) {
    constexpr int kGroupThreads = 32 * Tile::kGroupWarps;
    float* mine = shared + thread % kGroupThreads;
#pragma unroll
    for (int pass = 0; pass < 2; ++pass) {
      if (group == 1 - pass) {
#pragma unroll
        for (int i = 0; i < Tile::kTilesDown; ++i) {
#pragma unroll
          for (int j = 0; j < Tile::kTilesAcross; ++j) {
#pragma unroll
            for (int e = 0; e < 4; ++e) {
              float& slot = mine[((i * Tile::kTilesAcross + j) * 4 + e) * kGroupThreads];
              if (pass == 0) {
                slot = sums[i][j][e];
              } else {
                sums[i][j][e] += slot;
              }
            }
          }
        }
      }
      __syncthreads();
    }
  }
};

template <class Tile, class Finish>
__global__ void __launch_bounds__(Tile::kThreads, Tile::kBlocks)
    gemm_kernel(GemmInput in, Finish finish) {
  extern __shared__ __align__(128) char shared[];
  const unsigned base = ptx::shared_address(shared);
  const int thread = static_cast<int>(threadIdx.x);
  const int first_row = static_cast<int>(blockIdx.x) * Tile::kRows;
  const int first_column = static_cast<int>(blockIdx.y) * Tile::kColumns;
  const GemmLoader<Tile> loader(in, finish, first_row, first_column, thread);
  GemmWarp<Tile> warp(thread);

  const int stages = in.depth / Tile::kDepth;
  auto load = [&](int stage) {
    if (stage < stages) {
      loader.load(base + static_cast<unsigned>(stage % Tile::kStages * Tile::kStageBytes),
                  stage * Tile::kDepth);
    }
    ptx::commit_copies();  // an empty group if no stage is left: wait_copies() below counts groups
  };
#pragma unroll
  for (int stage = 0; stage < Tile::kStages - 1; ++stage) load(stage);
#pragma unroll 1
  for (int stage = 0; stage < stages; ++stage) {
    ptx::wait_copies<Tile::kStages - 2>();
    __syncthreads();  // all threads' copies of this stage are visible; the stage before is free
    load(stage + Tile::kStages - 1);
    warp.multiply(base + static_cast<unsigned>(stage % Tile::kStages * Tile::kStageBytes));
  }
  if constexpr (Tile::kGroups == 2) {
    ptx::wait_copies<0>();
    __syncthreads();
    warp.join_groups(reinterpret_cast<float*>(shared), thread);
    if (warp.group != 0) return;
  }
#pragma unroll
  for (int i = 0; i < 2 * Tile::kTilesDown; ++i) {
    const int row = first_row + warp.row + i * 8 + warp.lane / 4;
    if (row >= in.rows) continue;
    const int column = warp.column + warp.lane % 4 * 2, e = i % 2 * 2;
#pragma unroll
    for (int j = 0; j < Tile::kTilesAcross; ++j) {
      const float* x = warp.sums[i / 2][j];
      if constexpr (Finish::kPaired) {
        if (j % 2 != 0) continue;
        const float* y = warp.sums[i / 2][j + 1];
        finish.finish(row, first_column / 2 + warp.column / 2 + j * 4 + warp.lane % 4 * 2,
                      make_float2(x[e], x[e + 1]), make_float2(y[e], y[e + 1]));
      } else {
        finish.finish(row, first_column + column + j * 8, make_float2(x[e], x[e + 1]));
      }
    }
  }
}

}  // namespace mkbench::prefill
