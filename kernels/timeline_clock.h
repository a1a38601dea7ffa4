// The clocks of a launch's blocks as one clock: a line through the readings of each block or, where these show that no
// line is right, from each reading to the next.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "kernels/timeline_events.h"
#include "references/timeline.h"

namespace mkbench {

// One reading of a block's two clocks, as distances from the block's first reading.
struct ClockReading {
  size_t number = 0;  // among the launch's readings
  double cycles = 0, ns = 0;
  double read_cycles = 0;  // how long it took: the timer's value is of some moment within
  double step_ns = 0;      // of the timer, 0: it was not seen to step
  bool used = false;       // it took no longer than others; the line goes through those alone
};

// A block's clock as a line, because one reading alone is as inexact as the timer's step and the time to read it.
struct BlockClock {
  TimelineAnchor first{};              // the first reading that was written
  std::vector<ClockReading> readings;  // those that were written, in the order of their making
  double cycles = 0, ns = 0;           // a point of the line
  double ns_per_cycle = 0;
};

// The lines of all blocks, and what the readings deviate from them: in common, which is a change of the clocks'
// frequency, or each block by itself, as multiprocessors at full load do.
class LaunchClocks {
 public:
  // `anchors`: (blocks, readings). Throws Error(kRuntime) that begins with `who` where a block has not read its
  // clocks twice.
  LaunchClocks(const std::string& who, int blocks, std::span<const TimelineAnchor> anchors);

  // Nanoseconds since the launch's first reading.
  double ns(int block, unsigned long long cycles) const;
  // Fills in what is to be said of the clock.
  void tell(ClockQuality& quality) const;

 private:
  void fit_lines(const std::vector<std::vector<double>>& weights);
  double distance(const BlockClock& block, const ClockReading& reading) const;
  double neighbours_distance(const BlockClock& block, const ClockReading& reading) const;
  double correction(const BlockClock& block, double cycles, bool own,
                    const ClockReading* aside) const;

  std::vector<BlockClock> blocks_;
  std::vector<double> common_;  // of each reading of the launch
  bool by_reading_ = false;  // from reading to reading, because blocks change their pace one by one
  double step_ns_ = 0;       // the smallest step of the timer that was seen
  unsigned long long first_ns_ = 0;
};

}  // namespace mkbench
