// Device functions that the prefill kernels share: bf16 pairs and sums over a warp.
#pragma once

#include "kernels/prefill/inputs.h"
#include "kernels/ptx_sm80.cuh"

namespace mkbench::prefill {

__device__ __forceinline__ float low_of(unsigned pair) { return __uint_as_float(pair << 16); }
__device__ __forceinline__ float high_of(unsigned pair) {
  return __uint_as_float(pair & 0xffff0000u);
}
__device__ __forceinline__ float widen(unsigned short bits) {
  return __uint_as_float(static_cast<unsigned>(bits) << 16);
}

// Two fp32 values in two bf16 planes: high is the bf16 nearest to a value, low the bf16 nearest to
// value - high.
struct SplitPair {
  unsigned high, low;
};

__device__ __forceinline__ SplitPair split_pair(float a, float b) {
  const unsigned high = ptx::bf16_pair(a, b);
  return {high, ptx::bf16_pair(a - low_of(high), b - high_of(high))};
}

// Stores elements `at` and `at` + 1, `at` even.
__device__ __forceinline__ void store_split(const SplitRows& to, size_t at, float a, float b) {
  const SplitPair s = split_pair(a, b);
  *reinterpret_cast<unsigned*>(to.high + at) = s.high;
  *reinterpret_cast<unsigned*>(to.low + at) = s.low;
}

// The sum over a warp's lanes, with the same bits in every lane.
__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
  for (int offset = 16; offset > 0; offset >>= 1) x += __shfl_xor_sync(~0u, x, offset);
  return x;
}

}  // namespace mkbench::prefill
