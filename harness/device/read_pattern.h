// The search for the quickest pattern in which the ceiling can read memory. Independent of CUDA:
// the caller times.
#pragma once

#include <cstdint>
#include <functional>

#include "harness/report/ceiling_pattern.h"

namespace mkbench {

// The ways of reading that a card offers.
struct PatternSpace {
  bool bulk = false;
  uint32_t most_ring_copies = 0;  // most copies of `ring` in flight; 0 if `ring` cannot run
  uint32_t bulk_blocks = 0, ring_blocks = 0;
  uint64_t step_bytes = 0;  // read by one step
  uint64_t l2_bytes = 0;
};

// Runs steps in a pattern and returns their milliseconds.
using TimePattern = std::function<double(const ReadPattern&, int steps)>;

struct FoundPattern {
  ReadPattern pattern;
  double ms_per_step = 0;  // by the search's samples: the lowest of many, so biased low
  int tried = 0;           // number of patterns that were timed
};

// Tries all patterns without gaps between copies, then gaps for the best of each way, then, in two
// rounds, patterns near the best; and, where L2 holds a notable part of a step, the best in orders
// that find some of a step's bytes there. Then times the best in turns, in samples of >=
// kLongSampleMs.
// Skips patterns for which `time` throws Error; throws the last such error if all are skipped.
FoundPattern find_pattern(const PatternSpace& space, const TimePattern& time);

inline constexpr double kLongSampleMs = 20;  // length of the shortest final sample
// The number of steps that take `ms`, at least 1 and at most 4096.
int steps_for(double ms, double ms_per_step);

}  // namespace mkbench
