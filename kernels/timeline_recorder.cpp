#include "kernels/timeline_recorder.h"

#include <algorithm>
#include <utility>

namespace mkbench {
namespace {

constexpr size_t kMostBytes = size_t{512} << 20;
// Room for the events of a track. ring's loader writes the most: two for each wait for a free slot.
constexpr size_t kEventsPerLayer = 80, kEventsPerStep = 512, kEventsPerLaunch = 16;

}  // namespace

TimelineRecorder::TimelineRecorder(std::vector<std::string> roles, int blocks, int most_readings)
    : roles_(std::move(roles)), blocks_(blocks), most_readings_(most_readings), counts_(tracks()) {}

void TimelineRecorder::prepare(int steps, int layers) {
  const auto wanted = static_cast<size_t>(steps) *
                          (static_cast<size_t>(layers) * kEventsPerLayer + kEventsPerStep) +
                      kEventsPerLaunch;
  room_ = static_cast<unsigned>(std::min(wanted, kMostBytes / sizeof(TimelineEvent) / tracks()));
  readings_ =
      static_cast<size_t>(steps) * static_cast<size_t>(readings_per_step(most_readings_, steps)) +
      1;
  events_.reserve(tracks() * room_);
  anchors_.reserve(static_cast<size_t>(blocks_) * readings_);
  MKBENCH_CUDA(cudaMemset(counts_.get(), 0, counts_.bytes()));
  MKBENCH_CUDA(cudaMemset(anchors_.get(), 0, anchors_.bytes()));
}

TimelineBuffers TimelineRecorder::buffers() const {
  return {events_.get(), counts_.get(), anchors_.get(), room_};
}

Timeline TimelineRecorder::collect(const std::string& who) const {
  RecordedLaunch launch;
  launch.clock = "%clock64 of each multiprocessor; up to " + std::to_string(readings_) +
                 " readings of %globaltimer per block";
  launch.roles = roles_;
  launch.blocks = blocks_;
  launch.room = room_;
  launch.counts.resize(tracks());
  launch.tracks.resize(tracks());
  launch.anchors.resize(static_cast<size_t>(blocks_) * readings_);
  MKBENCH_CUDA(
      cudaMemcpy(launch.counts.data(), counts_.get(), 4 * tracks(), cudaMemcpyDeviceToHost));
  MKBENCH_CUDA(cudaMemcpy(launch.anchors.data(), anchors_.get(),
                          launch.anchors.size() * sizeof(TimelineAnchor), cudaMemcpyDeviceToHost));
  for (size_t track = 0; track < tracks(); ++track) {
    std::vector<TimelineEvent>& events = launch.tracks[track];
    events.resize(std::min(launch.counts[track], room_));
    MKBENCH_CUDA(cudaMemcpy(events.data(), events_.get() + track * room_,
                            events.size() * sizeof(TimelineEvent), cudaMemcpyDeviceToHost));
  }
  return decode_launch(who, launch);
}

}  // namespace mkbench
