// Device memory for the timelines of an engine's launches.
#pragma once

#include <string>
#include <vector>

#include "kernels/device_buffer.h"
#include "kernels/timeline_decode.h"

namespace mkbench {

class TimelineRecorder {
 public:
  // roles: the tracks of a block; blocks: the launch's grid. In a step each block reads its clocks up to
  // `most_readings` times (readings_per_step()), and once more at the launch's end.
  TimelineRecorder(std::vector<std::string> roles, int blocks, int most_readings);

  // Call before a launch of `steps` steps of a model with `layers` layers: makes room for its events,
  // within kMostBytes. Events that do not fit are counted and dropped.
  void prepare(int steps, int layers);
  TimelineBuffers buffers() const;
  // Reads what the launch wrote; call it after the launch. Throws Error(kCuda), and what decode_launch() throws.
  Timeline collect(const std::string& who) const;

 private:
  size_t tracks() const { return roles_.size() * static_cast<size_t>(blocks_); }

  const std::vector<std::string> roles_;
  const int blocks_, most_readings_;
  unsigned room_ = 0;
  size_t readings_ = 0;  // room for clock readings of each block
  DeviceBuffer<TimelineEvent> events_;
  DeviceBuffer<unsigned> counts_;
  DeviceBuffer<TimelineAnchor> anchors_;
};

}  // namespace mkbench
