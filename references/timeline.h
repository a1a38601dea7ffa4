// What each block of a kernel did during one decode, and when: `mkbench profile --timeline`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "references/base/fields.h"
#include "references/span_kind.h"

namespace mkbench {

// What one part of one block did from t0 to t1. Plain memory: spans travel as bytes.
struct TimelineSpan {
  int64_t t0_ns = 0, t1_ns = 0;  // since the first span's begin
  int32_t block = 0;
  int32_t layer = -1;  // -1 outside of the layers, or not known
  int32_t step = -1;   // step of the decode; -1: not known
  int16_t phase = 0;   // index in Timeline::phases
  int8_t role = 0;     // index in Timeline::roles
  int8_t kind = 0;     // SpanKind

  SpanKind what() const { return static_cast<SpanKind>(kind); }
};
static_assert(sizeof(TimelineSpan) == 32);

// How well the blocks' clocks are aligned. A line is fitted through each block's readings of a
// shared clock; readings that took much longer than others are left out. If most readings lie off
// every line, time is interpolated between neighbouring readings instead (by_reading).
struct ClockQuality {
  double step_ns = 0;  // smallest step seen of the shared clock; 0: there is no shared clock
  int64_t readings = 0, left_out = 0;  // readings of all blocks, and how many were left out
  bool by_reading = false;             // time is interpolated between readings
  double line_error_ns = 0;            // the largest distance of a reading from its block's line
  // A reading's error: its distance from its block's line or, with by_reading, from the line
  // between its neighbours. Maximum, 99th percentile, and maximum of the readings left out.
  double error_ns = 0, error_99_ns = 0, left_out_error_ns = 0;
  double longest_read_ns = 0;   // longest duration of a reading that was used
  double left_out_read_ns = 0;  // longest duration of a reading that was left out

  static void fields(auto& v) {
    using Q = ClockQuality;
    list_fields(v, "step_ns", &Q::step_ns, "readings", &Q::readings, "left_out", &Q::left_out,
                "by_reading", &Q::by_reading, "line_error_ns", &Q::line_error_ns, "error_ns",
                &Q::error_ns, "error_99_ns", &Q::error_99_ns, "left_out_error_ns",
                &Q::left_out_error_ns, "longest_read_ns", &Q::longest_read_ns, "left_out_read_ns",
                &Q::left_out_read_ns);
  }
};

struct Timeline {
  std::vector<std::string> roles;   // the parts of a block; the computing part comes first
  std::vector<std::string> phases;  // in the order of execution
  std::vector<TimelineSpan> spans;  // by block, role and begin
  int64_t lost = 0;                 // events dropped at each part's end, for want of room
  int whole_steps = -1;             // number of steps, from 0, that lost no event; -1: all
  std::string clock;                // which clock, and how it was read
  ClockQuality quality;
};

// Drops the spans of the last steps, for all blocks alike, until at most `most` spans are left, and
// counts the dropped ones as lost.
void keep_first_steps(Timeline& timeline, int64_t most);

}  // namespace mkbench
