#include "kernels/timeline_decode.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "references/base/error.h"

namespace mkbench {
namespace {

// A block's clock in nanoseconds of the shared timer: the line through its readings with the least squares, because
// one reading alone is as inexact as the timer's step and the time to read it, and what all blocks deviate from their
// lines in common, which is a change of the clocks' frequency.
struct BlockClock {
  std::vector<TimelineAnchor> readings;  // those that were written
  std::vector<size_t> numbers;           // the number of each among the launch's readings
  double cycles = 0, ns = 0;             // a point of the line, as distances from the first reading
  double ns_per_cycle = 0;

  double cycles_of(unsigned long long at) const {
    return static_cast<double>(static_cast<int64_t>(at - readings.front().cycles));
  }
  double line(unsigned long long at) const { return ns + (cycles_of(at) - cycles) * ns_per_cycle; }
  double distance(const TimelineAnchor& a) const {
    return static_cast<double>(a.ns - readings.front().ns) - line(a.cycles);
  }
  // `common`: of each reading of the launch.
  double at(unsigned long long cycles_now, const std::vector<double>& common) const {
    size_t next = 1;
    while (next + 1 < readings.size() && readings[next].cycles < cycles_now) ++next;
    const double from = cycles_of(readings[next - 1].cycles), to = cycles_of(readings[next].cycles);
    const double share =
        to > from ? std::clamp((cycles_of(cycles_now) - from) / (to - from), 0.0, 1.0) : 0.0;
    return line(cycles_now) + (1 - share) * common[numbers[next - 1]] +
           share * common[numbers[next]];
  }
};

BlockClock fit_clock(const std::string& who, int block, std::span<const TimelineAnchor> all) {
  BlockClock clock;
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i].ns == 0) continue;
    clock.readings.push_back(all[i]);
    clock.numbers.push_back(i);
  }
  const std::vector<TimelineAnchor>& read = clock.readings;
  if (read.size() < 2 || read.back().cycles == read.front().cycles) {
    throw Error(ErrorKind::kRuntime, who + ": timeline: block " + std::to_string(block) +
                                         ": found " + std::to_string(read.size()) +
                                         " readings of its clocks, wanted 2 or more that differ");
  }
  const auto ns = [&](const TimelineAnchor& a) {
    return static_cast<double>(a.ns - read.front().ns);
  };
  for (const TimelineAnchor& a : read) {
    clock.cycles += clock.cycles_of(a.cycles) / static_cast<double>(read.size());
    clock.ns += ns(a) / static_cast<double>(read.size());
  }
  double both = 0, square = 0;
  for (const TimelineAnchor& a : read) {
    const double off = clock.cycles_of(a.cycles) - clock.cycles;
    both += off * (ns(a) - clock.ns);
    square += off * off;
  }
  clock.ns_per_cycle = both / square;
  return clock;
}

struct LaunchClocks {
  std::vector<BlockClock> blocks;
  std::vector<double> common;  // mean distance of the blocks' readings from their lines

  unsigned long long first_ns() const {
    unsigned long long first = blocks.empty() ? 0 : blocks.front().readings.front().ns;
    for (const BlockClock& block : blocks) first = std::min(first, block.readings.front().ns);
    return first;
  }
};

// All blocks' clocks, and what they say of the timer.
LaunchClocks fit_clocks(const std::string& who, const RecordedLaunch& launch, Timeline& timeline) {
  const size_t readings = launch.anchors.size() / static_cast<size_t>(std::max(launch.blocks, 1));
  LaunchClocks clocks;
  clocks.common.resize(readings);
  std::vector<int> counts(readings);
  for (int block = 0; block < launch.blocks; ++block) {
    const std::span all(launch.anchors.data() + static_cast<size_t>(block) * readings, readings);
    clocks.blocks.push_back(fit_clock(who, block, all));
    const BlockClock& clock = clocks.blocks.back();
    for (size_t i = 0; i < clock.readings.size(); ++i) {
      clocks.common[clock.numbers[i]] += clock.distance(clock.readings[i]);
      ++counts[clock.numbers[i]];
    }
  }
  for (size_t i = 0; i < readings; ++i) clocks.common[i] /= std::max(counts[i], 1);
  for (const BlockClock& clock : clocks.blocks) {
    for (size_t i = 0; i < clock.readings.size(); ++i) {
      const double off = clock.distance(clock.readings[i]) - clocks.common[clock.numbers[i]];
      timeline.clock_error_ns = std::max(timeline.clock_error_ns, std::abs(off));
      const auto step = static_cast<double>(clock.readings[i].timer_step_ns);
      if (step > 0 && (timeline.clock_step_ns == 0 || step < timeline.clock_step_ns))
        timeline.clock_step_ns = step;
    }
  }
  return clocks;
}

struct Site {
  int phase = 0, layer = -1, step = -1;
};

Site site_of(const TimelineEvent& event) {
  return {static_cast<int>(event.what >> 8 & 0xff), static_cast<int>(event.what >> 16) - 1,
          event.step};
}

// The spans between a track's events. Times are not yet those of all blocks' first span.
void append_track(const std::string& who, std::span<const TimelineEvent> events, TimelineSpan span,
                  const LaunchClocks& clocks, std::vector<TimelineSpan>& spans) {
  const BlockClock& clock = clocks.blocks[static_cast<size_t>(span.block)];
  const auto before = static_cast<int64_t>(clock.readings.front().ns - clocks.first_ns());
  const auto ns = [&](const TimelineEvent& e) {
    return before + std::llround(clock.at(e.cycles, clocks.common));
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
}

}  // namespace

Timeline decode_launch(const std::string& who, const RecordedLaunch& launch) {
  Timeline timeline;
  timeline.clock = launch.clock;
  timeline.roles = launch.roles;
  for (const PhaseInfo& phase : kPhases) timeline.phases.emplace_back(phase.name);
  const LaunchClocks clocks = fit_clocks(who, launch, timeline);
  const size_t roles = launch.roles.size();
  for (size_t track = 0; track < launch.tracks.size(); ++track) {
    TimelineSpan span;
    span.block = static_cast<int32_t>(track / roles);
    span.role = static_cast<int8_t>(track % roles);
    append_track(who, launch.tracks[track], span, clocks, timeline.spans);
    if (launch.counts[track] > launch.room) timeline.lost += launch.counts[track] - launch.room;
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
