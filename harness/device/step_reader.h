// Reads device memory as the steps of a decode do, and does nothing else: the ceiling of a decoder
// that reads all its weights for every token.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "harness/device/read_pattern.h"
#include "harness/device/step_walk.h"

namespace mkbench {

class StepReader {
 public:
  // Reads whole granules, so the memory that it is given must be padded() to one.
  static constexpr int64_t kGranule = 16 * 1024;
  static constexpr int64_t padded(int64_t bytes) {
    return (bytes + kGranule - 1) / kGranule * kGranule;
  }

  // Makes `gpu` the current device. Throws Error(kCuda).
  explicit StepReader(int gpu);
  StepReader(const StepReader&) = delete;
  StepReader& operator=(const StepReader&) = delete;
  ~StepReader();

  bool has_bulk_copy() const;  // sm_90 and later
  int blocks() const;          // that issue bulk copies: one a multiprocessor
  // Starts and waits for one launch that reads `bytes` of `memory`, which is a multiple of 16 bytes
  // and padded() long. Milliseconds by CUDA events around the launch. On the default stream. Throws
  // Error(kBadInput) for a plan out of its limits, for bulk copies on a card without them and for
  // Way::kRing, Error(kHang) when a copy never arrives.
  double read(const ReadPattern& pattern, const void* memory, const StepBytes& bytes);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Fills device memory with distinct bits, because reading constant data draws less power than
// reading weights. `bytes` is a multiple of 16. Not synchronised.
void fill_with_bits(void* memory, int64_t bytes);

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
  int64_t bytes_per_launch() const;  // the buffer, as often as makes 3 ms and more
  // Milliseconds of one launch that reads bytes_per_launch(); throws what StepReader::read() throws.
  double ms(const ReadPattern& pattern);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace mkbench
