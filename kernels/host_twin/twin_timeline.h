// The timeline of the host twin: what each block did when, written by the thread that runs it.
#pragma once

#include <vector>

#include "kernels/timeline_events.h"
#include "references/timeline.h"

namespace mkbench::host_twin {

class TwinTimeline {
 public:
  // Makes room for the events of a launch. A block's events are appended by one thread at a time.
  TwinTimeline(int blocks, int steps, int layers);

  // From now on `block` works in this phase.
  void enter(int block, Phase phase, int layer, int step) {
    put(block, timeline_state(SpanKind::kBody, phase, layer), step);
  }
  // From now on `block` waits for the inputs of the phase that it enters next.
  void wait(int block) { put(block, timeline_state(SpanKind::kExchange, kNextSite), 0); }
  void end(int block) { put(block, kTrackEnd, 0); }

  // Returns what was recorded; call it after the launch.
  Timeline collect() const;

 private:
  void put(int block, unsigned what, int step);

  const unsigned room_;
  std::vector<std::vector<TimelineEvent>> tracks_;  // reserved: nothing is allocated in a launch
};

}  // namespace mkbench::host_twin
