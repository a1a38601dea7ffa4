// PTX instructions that need sm_80, each in one function: tensor-core products of bf16 matrices,
// and asynchronous copies.
#pragma once

#include "kernels/partition.h"

namespace mkbench::ptx {

// The address of shared memory that ldmatrix, cp.async, mbarrier and bulk copies take.
__device__ __forceinline__ unsigned shared_address(const void* p) {
  return static_cast<unsigned>(__cvta_generic_to_shared(p));
}

// Loads four 8 x 8 tiles of 16-bit elements, one into each register. Lane i passes the address of
// row i % 8 of tile i / 8 (16 bytes); lane l receives row l / 4, columns 2 (l % 4) and + 1 of each
// tile.
__device__ __forceinline__ uint4 load_tiles(unsigned address) {
  uint4 v;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(address)
               : "memory");
  return v;
}

// Loads four tiles transposed: lane l receives rows 2 (l % 4) and + 1 of column l / 4 of each tile.
__device__ __forceinline__ uint4 load_tiles_transposed(unsigned address) {
  uint4 v;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(address)
               : "memory");
  return v;
}

// d (16 x 8, fp32) += a (16 x 16, bf16) * b (16 x 8, bf16). Lane l with g = l / 4, j = l % 4 holds
//   d   (g, 2j), (g, 2j + 1), (g + 8, 2j), (g + 8, 2j + 1)
//   a   pairs of columns that begin at (g, 2j), (g + 8, 2j), (g, 2j + 8), (g + 8, 2j + 8)
//   b   pairs of rows that begin at (2j, g), (2j + 8, g)
// as (row, column).
__device__ __forceinline__ void mma_k16(float (&d)[4], uint4 a, unsigned b0, unsigned b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1));
}

// Copies 16 bytes from global to shared memory, past L1. The copy is complete once the group that
// it was committed with has been waited for.
__device__ __forceinline__ void copy_async(unsigned to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}

__device__ __forceinline__ void commit_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

// Waits until all but the newest kPending groups of this thread have arrived.
template <int kPending>
__device__ __forceinline__ void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// Rounds two fp32 to a pair of bf16, to nearest even, with `low` in bits 0-15. NaN stays NaN.
__device__ __forceinline__ unsigned bf16_pair(float low, float high) {
  unsigned pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

}  // namespace mkbench::ptx
