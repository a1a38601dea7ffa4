// The residual stream's exchange in integers, because integer sums have the same bits in whatever
// order blocks add.
//
// An accumulator is a word of 64 bits. Each of kGroups contributors adds fixed_contribution(): 1 in
// the upper 16 bits counts the arrival, and the lower 48 bits get 2^44, which keeps their sum
// positive, plus the value in units of 2^-24. Accumulators are never reset: a reader subtracts the
// value that it saw last.
#pragma once

#include "kernels/ring/layout.h"

namespace mkbench::ring {

using FixedWord = unsigned long long;

inline constexpr float kFixedScale = 16777216.0f;  // 2^24
// Every contribution must be smaller in magnitude than this: then the sum of 8 cannot carry into
// the count of arrivals.
inline constexpr float kFixedLimit = 1048576.0f;  // 2^20
inline constexpr FixedWord kFixedArrival = (1ull << 48) + (1ull << 44);

// What a contributor adds. `units`: its value, rounded to units of 2^-24.
MKBENCH_HD constexpr FixedWord fixed_contribution(long long units) {
  return kFixedArrival + static_cast<FixedWord>(units);
}

// The number of contributions between two readings, given their difference.
MKBENCH_HD constexpr unsigned fixed_arrivals(FixedWord difference) {
  return static_cast<unsigned>(difference >> 48);
}

// The sum of kGroups contributions, given the difference of the readings before and after them.
// Subtracting the offset kGroups * 2^44 = 2^47 from the 48-bit sum means flipping bit 47, its sign.
// The upper 32 and the lower 16 bits are converted apart, so the result is rounded once more, to
// fp32.
MKBENCH_HD float fixed_sum(FixedWord difference) {
  static_assert(kGroups == 8, "the offsets add up to 2^47");
  const unsigned high_bits = static_cast<unsigned>(difference >> 16) ^ 0x80000000u;
  const float high = static_cast<float>(static_cast<int>(high_bits));
  const float low = static_cast<float>(static_cast<unsigned>(difference & 0xffffu));
  return (high * 65536.0f + low) * (1.0f / kFixedScale);
}

}  // namespace mkbench::ring
