// The events of a launch as spans with times of one clock.
#pragma once

#include <string>
#include <vector>

#include "kernels/timeline_events.h"
#include "references/timeline.h"

namespace mkbench {

// What a launch has left of its timeline, in host memory.
struct RecordedLaunch {
  std::string clock;               // how the events' clock became that of the anchors
  std::vector<std::string> roles;  // names of a block's tracks
  int blocks = 0;
  unsigned room = 0;                               // events of a track
  std::vector<std::vector<TimelineEvent>> tracks;  // block * roles + role: events that found room
  std::vector<unsigned> counts;         // how many events each track had, also those without room
  std::vector<TimelineAnchor> anchors;  // (blocks, readings of each)
};

// Throws Error(kRuntime) that begins with `who` where a block has not read its clocks twice, and for an event
// that no kernel writes.
Timeline decode_launch(const std::string& who, const RecordedLaunch& launch);

}  // namespace mkbench
