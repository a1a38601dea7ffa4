// The residual stream's exchange in integers: what blocks add in any order gives the same bits.
//
// A word is 64 bits. Each of kGroups contributors adds one(): 1 in the upper 16 bits counts the
// arrival, 2^44 keeps the 48-bit sum positive, and the rest is the value in units of 2^-24. Words
// are never reset: a reader subtracts what it saw last.
#pragma once

#include "kernels/ring/layout.h"

namespace mkbench::ring {

using FixedWord = unsigned long long;

inline constexpr float kFixedScale = 16777216.0f;  // 2^24
// Contributions must be smaller in magnitude: 8 of them then leave the count alone.
inline constexpr float kFixedLimit = 1048576.0f;  // 2^20
inline constexpr FixedWord kFixedArrival = (1ull << 48) + (1ull << 44);

// What a contributor adds, from its value rounded to units of 2^-24.
MKBENCH_HD constexpr FixedWord fixed_contribution(long long units) {
  return kFixedArrival + static_cast<FixedWord>(units);
}

// Contributions between two readings, given their difference.
MKBENCH_HD constexpr unsigned fixed_arrivals(FixedWord difference) {
  return static_cast<unsigned>(difference >> 48);
}

// The sum of kGroups contributions, given the difference of the readings before and after them.
// The 48-bit sum less its offset of kGroups * 2^44 = 2^47 is a sign flip of bit 47; the two halves
// that are converted hold 32 and 16 bits, so the result is rounded once more, to fp32.
MKBENCH_HD float fixed_sum(FixedWord difference) {
  static_assert(kGroups == 8, "the offsets add up to 2^47");
  const unsigned high_bits = static_cast<unsigned>(difference >> 16) ^ 0x80000000u;
  const float high = static_cast<float>(static_cast<int>(high_bits));
  const float low = static_cast<float>(static_cast<unsigned>(difference & 0xffffu));
  return (high * 65536.0f + low) * (1.0f / kFixedScale);
}

}  // namespace mkbench::ring
