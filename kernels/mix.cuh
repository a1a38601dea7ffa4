// A hash of single words, for checksums that add the hashes up in any order.
#pragma once

namespace mkbench {

// A bijection of 64 bits.
__device__ __forceinline__ unsigned long long mix(unsigned long long x) {
  x ^= x >> 31;
  x *= 0x7fb5d329728ea185ull;
  x ^= x >> 27;
  x *= 0x81dadef4bc2dd44dull;
  return x ^ (x >> 33);
}

// The hash of `word` at `place`. Because the place enters it, a moved or swapped word changes the
// checksum.
__device__ __forceinline__ unsigned long long mix_at(unsigned long long word,
                                                     unsigned long long place) {
  return mix(word + place * 0x9e3779b97f4a7c15ull);
}

}  // namespace mkbench
