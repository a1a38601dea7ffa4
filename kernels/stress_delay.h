// The pseudo-random delays of a stress (references/stress.h), for the host twin and device code.
#pragma once

#include "kernels/partition.h"

namespace mkbench {

// Nanoseconds that `block` waits before arrival `count`: below `most_ns`; 0 for 7 of 8 arrivals.
MKBENCH_HD constexpr unsigned stress_delay_ns(unsigned seed, unsigned block, unsigned count,
                                              unsigned most_ns) {
  unsigned x = seed ^ (block * 0x9e3779b9u) ^ (count * 0x85ebca6bu);
  x ^= x >> 16;
  x *= 0x7feb352du;
  x ^= x >> 15;
  x *= 0x846ca68bu;
  x ^= x >> 16;
  return most_ns == 0 || (x & 7u) != 0 ? 0 : (x >> 3) % most_ns;
}

}  // namespace mkbench
