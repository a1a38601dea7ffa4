// PTX that needs sm_80: tensor-core products of bf16 matrices and copies that run beside them. Once
// each, under a name that says what it promises.
#pragma once

#include "kernels/partition.h"

namespace mkbench::ptx {

// What ldmatrix, cp.async, mbarriers and their kin take as an address.
__device__ __forceinline__ unsigned shared_address(const void* p) {
  return static_cast<unsigned>(__cvta_generic_to_shared(p));
}

// Four 8 x 8 tiles of 16-bit elements; lane i gives the address of row i % 8 of tile i / 8 (16
// bytes). Of each tile, lane l receives row l / 4, columns 2 * (l % 4) and the next.
__device__ __forceinline__ uint4 load_tiles(unsigned address) {
  uint4 v;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(address)
               : "memory");
  return v;
}

// The same tiles transposed: lane l receives rows 2 * (l % 4) and the next of column l / 4.
__device__ __forceinline__ uint4 load_tiles_transposed(unsigned address) {
  uint4 v;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(address)
               : "memory");
  return v;
}

// d (16 x 8, fp32) += a (16 x 16) * b (16 x 8), bf16. Lane l, g = l / 4, j = l % 4, holds of d rows
// g, g, g + 8, g + 8 and columns 2j, 2j + 1 twice; of a the pairs (g, 2j), (g + 8, 2j), (g, 2j +
// 8), (g + 8, 2j + 8); of b the pairs of rows 2j and 2j + 8 of column g.
__device__ __forceinline__ void mma_k16(float (&d)[4], uint4 a, unsigned b0, unsigned b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1));
}

// 16 bytes from global to shared memory, past L1; complete once the group that they are committed
// with has been waited for.
__device__ __forceinline__ void copy_async(unsigned to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}

__device__ __forceinline__ void commit_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

// All but the newest kPending groups of this thread have arrived.
template <int kPending>
__device__ __forceinline__ void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// Two fp32 to a pair of bf16, to nearest even: `low` into bits 0-15. NaN stays NaN.
__device__ __forceinline__ unsigned bf16_pair(float low, float high) {
  unsigned pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

}  // namespace mkbench::ptx
