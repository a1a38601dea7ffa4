// What a soak asks of an engine of ours, so that faults which need hours or luck show at once.
#pragma once

#include <cstdint>

namespace mkbench {

struct Stress {
  // Where the counters of the exchange between blocks begin, rounded down to a whole exchange: near 2^31 or
  // 2^32 a counter of 32 bits overflows within the next launches.
  uint64_t count_from = 0;
  // Before some of its arrivals a block waits, up to so many microseconds; which ones and how long follows
  // from the seed. 0: no block waits.
  int delay_us = 0;
  uint64_t delay_seed = 0;

  bool operator==(const Stress&) const = default;
};

}  // namespace mkbench
