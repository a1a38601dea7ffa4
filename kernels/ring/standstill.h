// Names the block that a launch of ring waits for, from what the launch has left in memory: the fault word
// and the exchange words (exchange.cuh), each of which carries the epoch of its last value.
#pragma once

#include <span>

#include "kernels/ring/fault_word.h"
#include "references/standstill.h"

namespace mkbench::ring {

struct StoodLaunch {
  FaultWord fault = 0;            // the launch's fault word; 0: no fault so far
  std::span<const char> words{};  // the exchange words as exchange_layout() places them
  ModelShape shape{};             // the model's
  int position = 0;               // position of the launch's first step
  int step = 0;                   // the step that the launch has reached, used if fault is 0
  bool ended = false;             // the launch is over
};

// An epoch is the number of a layer, counted over all steps of the launch, from 1. A block's epoch is the
// last layer for which the block has published both its q, k, v and its SwiGLU values.
Standstill standstill(const StoodLaunch& launch);

}  // namespace mkbench::ring
