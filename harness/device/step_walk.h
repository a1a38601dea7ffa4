// The order in which a grid reads the bytes of a decode: pure functions for host and device.
#pragma once

#include <cstdint>

#include "kernels/partition.h"

namespace mkbench {

// Step t reads `first` + t * `growth` bytes, from the beginning of one piece of memory.
struct StepBytes {
  uint64_t first;  // > 0
  uint64_t growth;
  uint32_t steps;

  MKBENCH_HD constexpr uint64_t of_step(uint32_t step) const { return first + step * growth; }
  // Bytes of all steps.
  MKBENCH_HD constexpr uint64_t all() const {
    return steps * first + growth * (uint64_t{steps} * (steps - 1) / 2);
  }
};

// Worker w of a grid reads chunks w, w + workers, .. of the sequence of all steps' chunks, so that
// neighbours read adjacent memory and no worker waits where a step ends. Back and forth, every other
// step's chunks come in the opposite order. The last chunk of a step may reach beyond its bytes.
class StepWalk {
 public:
  MKBENCH_HD StepWalk(const StepBytes& bytes, bool back_and_forth, uint32_t chunk_bytes,
                      uint32_t worker, uint32_t workers)
      : bytes_(bytes),
        back_and_forth_(back_and_forth),
        chunk_bytes_(chunk_bytes),
        workers_(workers),
        chunk_(worker) {
    length_ = chunks_of(0);
    settle();
  }
  MKBENCH_HD bool done() const { return step_ >= bytes_.steps; }
  MKBENCH_HD uint32_t step() const { return step_; }
  MKBENCH_HD uint32_t chunk() const {
    return back_and_forth_ && step_ % 2 == 1 ? length_ - 1 - chunk_ : chunk_;
  }
  MKBENCH_HD void next() {
    chunk_ += workers_;
    settle();
  }

 private:
  MKBENCH_HD uint32_t chunks_of(uint32_t step) const {
    return static_cast<uint32_t>((bytes_.of_step(step) + chunk_bytes_ - 1) / chunk_bytes_);
  }
  MKBENCH_HD void settle() {
    while (step_ < bytes_.steps && chunk_ >= length_) {
      chunk_ -= length_;
      length_ = chunks_of(++step_);
    }
  }

  StepBytes bytes_;
  bool back_and_forth_;
  uint32_t chunk_bytes_, workers_, chunk_;
  uint32_t step_ = 0, length_ = 0;
};

}  // namespace mkbench
