// Greedy choice of a token as one maximum over keys made of {logit, row}, whose order is "larger
// logit first, then lower row".
#pragma once

namespace mkbench {

// The key of a NaN logit. It is larger than all others and means "no token", because a NaN must not
// go unnoticed.
inline constexpr unsigned long long kNanKey = ~0ull;

// Larger logits give larger keys; among equal logits the lowest row has the largest key.
__device__ __forceinline__ unsigned long long best_key(float logit, int row) {
  if (logit != logit) return kNanKey;
  const unsigned bits = __float_as_uint(logit + 0.0f);  // -0 becomes +0: they are equal
  const unsigned ordered = (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
  return static_cast<unsigned long long>(ordered) << 32 | ~static_cast<unsigned>(row);
}

__device__ __forceinline__ unsigned long long max_key(unsigned long long a, unsigned long long b) {
  return a > b ? a : b;
}

__device__ __forceinline__ unsigned long long warp_max_key(unsigned long long key) {
#pragma unroll
  for (int offset = 16; offset > 0; offset >>= 1) {
    key = max_key(key, __shfl_xor_sync(~0u, key, offset));
  }
  return key;
}

}  // namespace mkbench
