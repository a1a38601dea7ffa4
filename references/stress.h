// The stress of a soak on mkbench's own engines, so that faults which need hours or luck show soon.
#pragma once

#include <cstdint>

namespace mkbench {

struct Stress {
  // First value of the counters of the exchange between blocks, rounded down to a whole exchange:
  // near 2^31 or 2^32 a counter of 32 bits overflows within the next launches.
  uint64_t count_from = 0;
  // Upper bound for delays in microseconds that a block inserts before some of its arrivals; which
  // ones and how long follows from the seed. 0: no delays.
  int delay_us = 0;
  uint64_t delay_seed = 0;

  bool operator==(const Stress&) const = default;
};

}  // namespace mkbench
