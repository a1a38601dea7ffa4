// Prepares L2 for a timed part: leaves no line in it that is still to be written to memory.
#pragma once

#include <memory>

namespace mkbench {

// Preparing a sample (poison, KV rows put back) leaves dirty lines in L2, which are written back
// during the decode that is timed next: +40 us on the first token (H100, with any engine). The
// flush reads a buffer and does not write it, because writing would leave dirty lines again.
class L2Flush {
 public:
  // Takes twice the size of L2 from GPU `gpu`'s memory. Throws Error(kCuda).
  explicit L2Flush(int gpu);
  L2Flush(const L2Flush&) = delete;
  L2Flush& operator=(const L2Flush&) = delete;
  ~L2Flush();

  // Releases persisting lines, replaces all lines by clean ones, and waits for the end. About 0.1
  // ms. Throws Error(kCuda).
  void run();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace mkbench
