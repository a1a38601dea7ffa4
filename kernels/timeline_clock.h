// Converts the clocks of a launch's blocks to one clock: by a line through the readings of each block or, if the
// readings reject a linear fit, by interpolation from each reading to the next.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "kernels/timeline_events.h"
#include "references/timeline.h"

namespace mkbench {

// One reading of a block's two clocks, as distances from the block's first reading.
struct ClockReading {
  size_t number = 0;  // index among the block's readings, unwritten ones included
  double cycles = 0, ns = 0;
  double read_cycles = 0;  // how long the reading took; the timer was sampled some time within
  double step_ns = 0;      // timer resolution in ns; 0 if unknown
  bool used = false;       // the reading was quick enough; the line is fitted to used readings only
};

// A block's clock as a line, because the error of a single reading is the timer's step plus the time to read it.
struct BlockClock {
  TimelineAnchor first{};              // the first reading that was written
  std::vector<ClockReading> readings;  // the written ones, in order of time
  double cycles = 0, ns = 0;           // a point on the line
  double ns_per_cycle = 0;
};

// The lines of all blocks, and the readings' deviations from them. A deviation is common to all
// blocks (the clocks' frequency changed) or a single block's (seen at full load).
class LaunchClocks {
 public:
  // `anchors`: (blocks, readings). Throws Error(kRuntime), its message prefixed with `who`, if a block has not read
  // its clocks twice.
  LaunchClocks(const std::string& who, int blocks, std::span<const TimelineAnchor> anchors);

  // Nanoseconds since the launch's first reading.
  double ns(int block, unsigned long long cycles) const;
  // Fills in the measures of the clock's quality.
  void tell(ClockQuality& quality) const;

 private:
  void fit_lines(const std::vector<std::vector<double>>& weights);
  double distance(const BlockClock& block, const ClockReading& reading) const;
  double neighbours_distance(const BlockClock& block, const ClockReading& reading) const;
  double correction(const BlockClock& block, double cycles, bool own,
                    const ClockReading* aside) const;

  std::vector<BlockClock> blocks_;
  std::vector<double> common_;  // deviation common to all blocks, by ClockReading::number
  bool by_reading_ = false;     // the linear fit is rejected: interpolate from reading to reading
  double step_ns_ = 0;          // the smallest step of the timer that was seen; 0: unknown
  unsigned long long first_ns_ = 0;
};

}  // namespace mkbench
