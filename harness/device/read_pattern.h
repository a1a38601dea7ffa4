// The search for the quickest pattern in which the ceiling can read memory. Independent of CUDA:
// the caller times.
#pragma once

#include <cstdint>
#include <functional>

#include "harness/report/ceiling_pattern.h"

namespace mkbench {

// What a card can do.
struct PatternSpace {
  bool bulk = false;
  uint32_t most_ring_copies = 0;  // in flight; 0: the ring cannot run
  uint32_t bulk_blocks = 0, ring_blocks = 0;
  uint64_t step_bytes = 0;  // that a step reads
};

// Milliseconds of a number of steps in a pattern.
using TimePattern = std::function<double(const ReadPattern&, int steps)>;

struct FoundPattern {
  ReadPattern pattern;
  double ms_per_step = 0;  // by the search's samples: the least of many, so biased low
  int tried = 0;           // patterns
};

// First every number of copies in flight without gaps, then gaps for the best of them, then twice
// their neighbours; the best of all are timed in turns by samples of kLongSampleMs and more. A pattern for
// which `time` throws Error is left out. Throws the last such error where none is left.
FoundPattern find_pattern(const PatternSpace& space, const TimePattern& time);

// The shortest final sample; the number of steps that take `ms`.
inline constexpr double kLongSampleMs = 20;
int steps_for(double ms, double ms_per_step);

}  // namespace mkbench
