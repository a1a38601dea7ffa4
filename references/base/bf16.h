// bfloat16 as 16 raw bits on the host: widening is exact, narrowing rounds to nearest even.
#pragma once

#include <bit>
#include <cstdint>

namespace mkbench {

// The upper half of an IEEE binary32, in a struct so that bits and integers cannot be mixed up.
struct Bf16 {
  uint16_t bits;
};
static_assert(sizeof(Bf16) == 2);

inline float to_float(Bf16 x) { return std::bit_cast<float>(uint32_t{x.bits} << 16); }

// Rounds to nearest, ties to even. NaN stays NaN (quieted), infinities stay.
inline Bf16 to_bf16(float x) {
  const uint32_t u = std::bit_cast<uint32_t>(x);
  if ((u & 0x7fffffffu) > 0x7f800000u) return {static_cast<uint16_t>((u >> 16) | 0x40u)};
  return {static_cast<uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16)};
}

inline bool is_finite(Bf16 x) { return (x.bits & 0x7f80u) != 0x7f80u; }

inline float round_to_bf16(float x) { return to_float(to_bf16(x)); }

}  // namespace mkbench
