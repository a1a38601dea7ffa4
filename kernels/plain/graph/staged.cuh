// A phase's weights in shared memory before its wait: one block's rows, requested by bulk copies as soon as
// the block begins. What follows the wait is reading the vector, the products and the result.
#pragma once

#include "kernels/plain/block.cuh"
#include "kernels/plain/graph/kernels.h"
#include "kernels/plain/matvec.cuh"
#include "kernels/ptx_sm90.cuh"

namespace mkbench::plain {

// A block's shared memory. The rows begin at `rows`, as many as the launch grants room for.
template <typename S>
struct StagedShared {
  Shared<S> plain;
  unsigned long long full;  // mbarrier: the rows have come
  alignas(16) unsigned short rows[8];
};

// row_sums has room for two sums of each row.
static_assert(kMostStagedRows <= kMostRowSums);

// The block's rows [begin, begin + count) of one or two matrices (gate and up), each `cols` wide.
struct StagedRows {
  const unsigned short *first, *second;  // second: null if there is one
  int begin, count, cols;

  __device__ __forceinline__ int rows() const { return second == nullptr ? count : 2 * count; }
};

// Thread 0 calls this. A block barrier must stand between this call and block_staged_dot(). The copies begin after
// pause_ns.
template <typename S>
__device__ __forceinline__ void request_rows(StagedShared<S>& s, const StagedRows& own,
                                             unsigned pause_ns) {
  const unsigned full = ptx::shared_address(&s.full), to = ptx::shared_address(s.rows);
  ptx::barrier_init(full, 1);
  ptx::barrier_init_fence();
  ptx::barrier_expect(full, static_cast<unsigned>(2 * own.rows() * own.cols));
  if (own.count == 0) return;
  for (const unsigned long long begun = ptx::global_ns(); ptx::global_ns() - begun < pause_ns;) {
  }
  const unsigned long long policy = ptx::evict_first_policy();
  const size_t at = static_cast<size_t>(own.begin) * own.cols;
  const auto bytes = static_cast<unsigned>(2 * own.count * own.cols);  // of each matrix
  ptx::bulk_copy(to, own.first + at, bytes, full, policy);
  if (own.second != nullptr) ptx::bulk_copy(to + bytes, own.second + at, bytes, full, policy);
}

// How a block deals the rows of a matrix of kMatrixRows (in the whole grid) x kCols to its warps.
template <typename S, int kMatrixRows, int kCols>
struct StagedPlan {
  static constexpr int kBlockRows = ceil_div(kMatrixRows, kUsualBlocks);
  static constexpr int kSplit = 2 * kBlockRows <= kWarps<S> ? 2 : 1;  // warps that share a row
  static constexpr int kStride = kWarps<S> / kSplit;                  // between a warp's rows
  static constexpr int kWanted = ceil_div(kBlockRows, kStride);
  static constexpr int kRows = kWanted < 3 ? kWanted : 3;  // that a warp multiplies at once
  // Octets at once; CUDA 12.8 spills with more of wide rows.
  static constexpr int kUnrolled = (kRows < 3 ? 4 : 2) / (kCols <= 1024 || kRows == 1 ? 1 : 2);
  static constexpr int kSegment = ceil_div(kCols / 8, kSplit);  // octets of a warp's part of a row
};

template <typename S>
__device__ __forceinline__ void wait_for_rows(StagedShared<S>& s) {
  const unsigned full = ptx::shared_address(&s.full);
  while (!ptx::barrier_try_wait(full, 0)) {
  }
}

// Dot products of all staged rows with Shared::activations, by fp32 FMA. Afterwards staged_sum() gives the sum
// of a row to any thread.
template <typename Plan, int kCols, typename S>
__device__ __forceinline__ void block_staged_dot(Thread me, StagedShared<S>& s, int rows) {
  wait_for_rows(s);
  const uint4* weights = reinterpret_cast<const uint4*>(s.rows);
  const int segment = me.warp % Plan::kSplit, begin = segment * Plan::kSegment;
  const int end = min(kCols / 8, begin + Plan::kSegment);
#pragma unroll 1
  for (int first = me.warp / Plan::kSplit; first < rows; first += Plan::kRows * Plan::kStride) {
    float sums[Plan::kRows] = {};
#pragma unroll(Plan::kUnrolled)
    for (int octet = begin + me.lane; octet < end; octet += 32) {
      const float4 a = s.plain.activations[octet], b = s.plain.activations[octet + kCols / 8];
#pragma unroll
      for (int i = 0; i < Plan::kRows; ++i) {
        const int row = min(first + i * Plan::kStride, rows - 1);  // past the last: not stored
        sums[i] = dot_octet(weights[row * (kCols / 8) + octet], a, b, sums[i]);
      }
    }
#pragma unroll
    for (int i = 0; i < Plan::kRows; ++i) {
      const float sum = warp_sum(sums[i]);
      const int row = first + i * Plan::kStride;
      if (me.lane == 0 && row < rows) (&s.plain.row_sums[0][0])[row * Plan::kSplit + segment] = sum;
    }
  }
  __syncthreads();
}

template <typename Plan, typename S>
__device__ __forceinline__ float staged_sum(const StagedShared<S>& s, int row) {
  const float* sums = &s.plain.row_sums[0][0] + row * Plan::kSplit;
  return Plan::kSplit == 1 ? sums[0] : sums[0] + sums[1];
}

}  // namespace mkbench::plain
