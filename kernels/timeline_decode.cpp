#include "kernels/timeline_decode.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "kernels/timeline_clock.h"
#include "references/base/error.h"

namespace mkbench {
namespace {

struct Site {
  int phase = 0, layer = -1, step = -1;
};

Site site_of(const TimelineEvent& event) {
  return {static_cast<int>(event.what >> 8 & 0xff), static_cast<int>(event.what >> 16) - 1,
          event.step};
}

// Appends the spans between a track's events to `spans`; returns the last one's step, -1 without
// spans. Times are not yet relative to the earliest span of all blocks.
int append_track(const std::string& who, std::span<const TimelineEvent> events, TimelineSpan span,
                 const LaunchClocks& clocks, std::vector<TimelineSpan>& spans) {
  const auto ns = [&](const TimelineEvent& e) {
    return std::llround(clocks.ns(span.block, e.cycles));
  };
  Site site;
  for (size_t i = 0; i + 1 < events.size(); ++i) {
    const unsigned kind = events[i].what & 0xff, named = events[i].what >> 8 & 0xff;
    if (named == kNextSite && events[i + 1].what == kTrackEnd) continue;
    if (named != kSameSite) site = site_of(events[named == kNextSite ? i + 1 : i]);
    if (kind >= static_cast<unsigned>(SpanKind::kCount) ||
        site.phase >= static_cast<int>(Phase::kCount)) {
      throw Error(ErrorKind::kRuntime, who + ": timeline: block " + std::to_string(span.block) +
                                           ": found an event of kind " + std::to_string(kind) +
                                           " in phase " + std::to_string(site.phase) +
                                           ", wanted one that kernels write");
    }
    span.t0_ns = ns(events[i]);
    span.t1_ns = ns(events[i + 1]);
    span.phase = static_cast<int16_t>(site.phase);
    span.layer = kPhases[site.phase].per_layer ? site.layer : -1;
    span.step = site.step;
    span.kind = static_cast<int8_t>(kind);
    if (span.t1_ns > span.t0_ns) spans.push_back(span);
  }
  return site.step;
}

}  // namespace

Timeline decode_launch(const std::string& who, const RecordedLaunch& launch) {
  Timeline timeline;
  timeline.clock = launch.clock;
  timeline.roles = launch.roles;
  for (const PhaseInfo& phase : kPhases) timeline.phases.emplace_back(phase.name);
  const LaunchClocks clocks(who, launch.blocks, launch.anchors);
  clocks.tell(timeline.quality);
  const size_t roles = launch.roles.size();
  for (size_t track = 0; track < launch.tracks.size(); ++track) {
    TimelineSpan span;
    span.block = static_cast<int32_t>(track / roles);
    span.role = static_cast<int8_t>(track % roles);
    const int last = append_track(who, launch.tracks[track], span, clocks, timeline.spans);
    if (launch.counts[track] <= launch.room) continue;
    timeline.lost += launch.counts[track] - launch.room;
    // The step in which the track became full is incomplete.
    const int whole = std::max(last, 0);
    timeline.whole_steps = timeline.whole_steps < 0 ? whole : std::min(timeline.whole_steps, whole);
  }
  int64_t begin = std::numeric_limits<int64_t>::max();
  for (const TimelineSpan& span : timeline.spans) begin = std::min(begin, span.t0_ns);
  for (TimelineSpan& span : timeline.spans) {
    span.t0_ns -= begin;
    span.t1_ns -= begin;
  }
  return timeline;
}

}  // namespace mkbench
