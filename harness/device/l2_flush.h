// L2 as a timed part should find it: without lines that are still to be written to memory.
#pragma once

#include <memory>

namespace mkbench {

// What prepares a sample (poison, KV rows put back) leaves dirty lines in L2, and the engine that
// is timed next pays for writing them back: 40 us of its first token on an H100, whatever the
// engine. A flush reads instead of writing, or it would leave its own.
class L2Flush {
 public:
  // Takes twice GPU `gpu`'s L2 of its memory. Throws Error(kCuda).
  explicit L2Flush(int gpu);
  L2Flush(const L2Flush&) = delete;
  L2Flush& operator=(const L2Flush&) = delete;
  ~L2Flush();

  // Lets go of lines that were made to persist, replaces all others by clean ones, and waits for
  // it. About 0.1 ms. Throws Error(kCuda).
  void run();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace mkbench
