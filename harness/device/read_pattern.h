// The search for the quickest pattern in which the ceiling can read memory. Knows no CUDA: the caller
// times.
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

// Milliseconds of so many steps in a pattern.
using TimePattern = std::function<double(const ReadPattern&, int steps)>;

struct FoundPattern {
  ReadPattern pattern;
  double ms_per_step = 0;  // of the search's own samples; the quickest of many, and so too short
  int tried = 0;           // patterns
};

// First every number of copies in flight without gaps, then gaps for the best of them, then twice
// their neighbours; the best of all are timed in turns by samples of kLongSampleMs and more. A pattern for
// which `time` throws Error is left out. Throws the last such error where none is left.
FoundPattern find_pattern(const PatternSpace& space, const TimePattern& time);

// The shortest sample that counts as one, and the steps that make it.
inline constexpr double kLongSampleMs = 20;
int steps_for(double ms, double ms_per_step);

}  // namespace mkbench
