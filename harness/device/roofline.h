// The ceiling of a decoder that reads all its weights for every token: how fast this card, now,
// reads memory.
#pragma once

#include <cstdint>
#include <string>

namespace mkbench {

// Rates are medians of `samples` timed launches, in 1e9 bytes per second.
struct ReadBandwidth {
  double plain_gb_per_s = 0;  // 16-byte loads by many threads
  double bulk_gb_per_s = 0;   // paced bulk copies to shared memory; 0 before sm_90
  std::string
      bulk_pattern;  // the best one: "3 x 16 KiB in flight, 700 cycles apart"; empty before sm_90
  int64_t buffer_bytes = 0;      // read over and over; far larger than L2
  int64_t bytes_per_sample = 0;  // of one timed launch
  int samples = 0;
  // Either way of reading alone can be 2-3 % low, so the ceiling is the better one.
  double best_gb_per_s() const {
    return plain_gb_per_s > bulk_gb_per_s ? plain_gb_per_s : bulk_gb_per_s;
  }
};

// Takes up to 16 GiB of device memory, and never more than half of what is free, for about a
// second. Synchronous, on the default stream of GPU `gpu`. Throws Error(kEnvUnfit) when not even 8
// x L2 of memory is free, Error(kCuda), Error(kHang) when a copy never arrives.
ReadBandwidth measure_read_bandwidth(int gpu);

}  // namespace mkbench
