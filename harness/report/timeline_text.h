// What `mkbench profile --timeline` prints of a timeline, in report.md and on the screen.
#pragma once

#include <string>
#include <vector>

#include "harness/measure/timeline_summary.h"

namespace mkbench {

// The clock of an engine that tells no time of its own. What it measures of a library's recorded
// decode includes that the library hands its spans over.
inline constexpr char kClockOfCall[] = "the harness's clock around the call";

// The cost of recording: the same decode with and without it, alternately.
struct ObserverCost {
  std::vector<double> without_ms, with_ms;  // how long each decode took
  std::string clock;                        // the clock that gave both

  // How much longer the median decode takes while it is recorded, as a share; 0 without decodes.
  double share() const;

  static void fields(auto& v) {
    list_fields(v, "without_ms", &ObserverCost::without_ms, "with_ms", &ObserverCost::with_ms,
                "clock", &ObserverCost::clock);
  }
};

// The report warns if recording costs a larger share of the decode.
inline constexpr double kMostObserverCost = 0.02;
// The report warns if the blocks' clocks err by a larger share of the path's shortest phase.
inline constexpr double kMostClockError = 0.2;

struct TimelineReport {
  std::string title;           // "ring on cuda (synthetic d=512 n=16)"
  std::string resolved;        // the engine, as it calls itself
  std::string trace, picture;  // files beside report.md
  std::string clock;
  ClockQuality quality;
  int first_traced_step = 0;
  TimelineSummary summary;
  ObserverCost cost;
};

// One line: what the recording has cost, and whether that is too much.
std::string cost_line(const ObserverCost& cost);
// The lines to read first: where the time goes, the longest part of the path, the slowest block.
std::vector<std::string> headlines(const TimelineReport& report);
// A section of report.md.
std::string timeline_markdown(const TimelineReport& report);

}  // namespace mkbench
