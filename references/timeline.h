// What each block of a kernel did when, in one decode: `mkbench profile --timeline`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "references/span_kind.h"

namespace mkbench {

// One part of one block, from t0 to t1. Plain memory: spans travel as bytes.
struct TimelineSpan {
  int64_t t0_ns = 0, t1_ns = 0;  // since the first span's begin
  int32_t block = 0;
  int32_t layer = -1;  // -1 outside of the layers, or not known
  int32_t step = -1;   // of the decode; -1: not known
  int16_t phase = 0;   // of Timeline::phases
  int8_t role = 0;     // of Timeline::roles
  int8_t kind = 0;     // SpanKind

  SpanKind what() const { return static_cast<SpanKind>(kind); }
};
static_assert(sizeof(TimelineSpan) == 32);

struct Timeline {
  std::vector<std::string> roles;   // the parts of a block, the one that computes first
  std::vector<std::string> phases;  // in the order of execution
  std::vector<TimelineSpan> spans;  // by block, role and begin
  int64_t lost = 0;                 // events that found no room, at each part's end
  std::string clock;                // which clock, and how it was read
  double clock_step_ns = 0;         // smallest step seen of the clock that all blocks share
  double clock_error_ns = 0;  // largest distance of a reading from the line drawn through them
};

}  // namespace mkbench
