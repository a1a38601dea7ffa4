// Converts the events of a launch to spans with times of one clock.
#pragma once

#include <string>
#include <vector>

#include "kernels/timeline_events.h"
#include "references/timeline.h"

namespace mkbench {

// The timeline data of one launch, copied to host memory.
struct RecordedLaunch {
  std::string clock;               // names the events' clock and how it is converted, for reports
  std::vector<std::string> roles;  // names of a block's tracks
  int blocks = 0;
  unsigned room = 0;                               // capacity of a track in events
  std::vector<std::vector<TimelineEvent>> tracks;  // [block * roles + role]: events that fitted
  std::vector<unsigned> counts;         // how many events each track had, dropped ones included
  std::vector<TimelineAnchor> anchors;  // (blocks, readings of each)
};

// Throws Error(kRuntime), its message prefixed with `who`, if a block has not read its clocks twice, and for an
// event that no kernel writes.
Timeline decode_launch(const std::string& who, const RecordedLaunch& launch);

}  // namespace mkbench
