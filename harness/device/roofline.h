// Measures how fast this card reads memory: the ceiling of a decoder that reads all its weights for
// every token.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace mkbench {

// The pattern in which each block issues bulk copies to shared memory (sm_90 and later).
struct BulkPlan {
  uint32_t stages;      // copies in flight, 1 .. kMostStages
  uint32_t copy_bytes;  // a multiple of 16 that divides 16 KiB
  uint32_t gap_cycles;  // from one copy to the next, by a schedule; 0 = at once

  static constexpr uint32_t kMostStages = 12;
  static constexpr uint32_t kMostRingBytes = 96 * 1024;  // within every card's limit from sm_90 on
  constexpr uint32_t ring_bytes() const { return stages * copy_bytes; }
};

// "3 x 16 KiB in flight, 700 cycles apart".
std::string pattern_text(const BulkPlan& plan);

// A buffer far larger than L2 and the ways of reading it, one timed launch at a time.
class ReadProbe {
 public:
  // Takes up to 16 GiB of device memory, and never more than half of what is free, on GPU `gpu`.
  // Throws Error(kEnvUnfit) when not even 8 x L2 of memory is free, Error(kCuda).
  explicit ReadProbe(int gpu);
  ReadProbe(const ReadProbe&) = delete;
  ReadProbe& operator=(const ReadProbe&) = delete;
  ~ReadProbe();

  bool has_bulk_copy() const;
  int64_t buffer_bytes() const;
  int64_t bytes_per_launch() const;  // the buffer, as often as makes 3 ms and more
  const char* buffer() const;        // device memory, distinct bits everywhere

  // Milliseconds of one launch that reads bytes_per_launch(): 16-byte loads by many threads, or
  // bulk copies by one thread of each multiprocessor. Synchronous, on the default stream.
  double plain_ms();
  // Throws Error(kBadInput) for a plan out of its limits or a card without bulk copies,
  // Error(kHang) when a copy never arrives.
  double bulk_ms(const BulkPlan& plan);
  // SM cycles per copy of a block in the last bulk_ms(). Throws Error(kRuntime) where there was
  // none.
  double cycles_a_copy() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Rates are medians of `samples` timed launches, in 1e9 bytes per second.
struct ReadBandwidth {
  double plain_gb_per_s = 0;     // 16-byte loads by many threads
  double bulk_gb_per_s = 0;      // paced bulk copies to shared memory; 0 before sm_90
  std::string bulk_pattern;      // the best one, see pattern_text(); empty before sm_90
  int64_t buffer_bytes = 0;      // read over and over; far larger than L2
  int64_t bytes_per_sample = 0;  // of one timed launch
  int samples = 0;
  // Each of the two ways of reading can be 2-3 % low alone, so the ceiling is the better of both.
  double best_gb_per_s() const {
    return plain_gb_per_s > bulk_gb_per_s ? plain_gb_per_s : bulk_gb_per_s;
  }
};

// Times reads of a ReadProbe for about a second. Synchronous, on the default stream of GPU `gpu`;
// throws the errors of the probe.
ReadBandwidth measure_read_bandwidth(int gpu);

}  // namespace mkbench
