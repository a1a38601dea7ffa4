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
  // read() reads whole granules, so its memory must be padded() to a multiple of this.
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
  int blocks() const;          // blocks that issue bulk copies: one per multiprocessor
  // Launches one kernel on the default stream, which reads `bytes` (a multiple of 16) of `memory`
  // (padded() long), and waits for it. Returns milliseconds between CUDA events around the launch.
  // Throws Error(kBadInput) for a plan out of its limits, for bulk copies on a card without them
  // and for Way::kRing, Error(kHang) when a copy never arrives.
  double read(const ReadPattern& pattern, const void* memory, const StepBytes& bytes);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Fills device memory with varied bits, because reading constant data draws less power than reading
// weights. `bytes` is a multiple of 16. Does not wait for the end.
void fill_with_bits(void* memory, int64_t bytes);

// Times launches that read a buffer far larger than L2.
class ReadProbe {
 public:
  // Takes up to 16 GiB of GPU `gpu`'s memory, and at most half of what is free. Throws
  // Error(kEnvUnfit) if less than 16 x L2 is free, Error(kCuda).
  explicit ReadProbe(int gpu);
  ReadProbe(const ReadProbe&) = delete;
  ReadProbe& operator=(const ReadProbe&) = delete;
  ~ReadProbe();

  bool has_bulk_copy() const;
  int64_t bytes_per_launch() const;  // whole passes over the buffer, 16 GiB or more in all
  // Milliseconds of one launch that reads bytes_per_launch(). Throws what StepReader::read() does.
  double ms(const ReadPattern& pattern);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace mkbench
