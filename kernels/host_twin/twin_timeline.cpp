#include "kernels/host_twin/twin_timeline.h"

#include <chrono>

#include "kernels/timeline_decode.h"

namespace mkbench::host_twin {
namespace {

// Each phase has two events: its body and its wait.
constexpr int kEventsPerPhase = 2, kEventsPerLaunch = 4;

unsigned long long now_ns() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<unsigned long long>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
}

}  // namespace

TwinTimeline::TwinTimeline(int blocks, int steps, int layers)
    : room_(static_cast<unsigned>(steps * (layers * kPhasesPerLayer + 2) * kEventsPerPhase +
                                  kEventsPerLaunch)),
      tracks_(static_cast<size_t>(blocks)) {
  for (std::vector<TimelineEvent>& track : tracks_) track.reserve(room_);
}

void TwinTimeline::put(int block, unsigned what, int step) {
  tracks_[static_cast<size_t>(block)].push_back({now_ns(), what, step});
}

Timeline TwinTimeline::collect() const {
  RecordedLaunch launch;
  launch.clock = "std::chrono::steady_clock";
  launch.roles = {"block"};
  launch.blocks = static_cast<int>(tracks_.size());
  launch.room = room_;
  launch.tracks = tracks_;
  for (const std::vector<TimelineEvent>& track : tracks_) {
    launch.counts.push_back(static_cast<unsigned>(track.size()));
    // Events carry ns of one clock, so any two anchors define the line from cycles to ns.
    const unsigned long long first = track.front().cycles;
    for (const unsigned long long ns : {first, first + 1'000'000'000})
      launch.anchors.push_back({ns, ns, 0, 0});
  }
  return decode_launch("host-twin", launch);
}

}  // namespace mkbench::host_twin
