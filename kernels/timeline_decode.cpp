#include "kernels/timeline_decode.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "references/base/error.h"

namespace mkbench {
namespace {

// A block's clock in nanoseconds of the shared timer: the line through its readings with the least squares.
// One reading alone is as inexact as the timer's step and the time to read it.
struct ClockLine {
  double cycles = 0, ns = 0;  // a point of the line, as distances from the first reading
  double ns_per_cycle = 0;
  unsigned long long first_cycles = 0, first_ns = 0;

  double at(unsigned long long reading) const {
    const auto since = static_cast<double>(static_cast<int64_t>(reading - first_cycles));
    return ns + (since - cycles) * ns_per_cycle;
  }
};

ClockLine fit_clock(const std::string& who, int block, std::span<const TimelineAnchor> all) {
  std::vector<TimelineAnchor> read;
  for (const TimelineAnchor& anchor : all) {
    if (anchor.ns != 0) read.push_back(anchor);
  }
  if (read.size() < 2 || read.back().cycles == read.front().cycles) {
    throw Error(ErrorKind::kRuntime, who + ": timeline: block " + std::to_string(block) +
                                         ": found " + std::to_string(read.size()) +
                                         " readings of its clocks, wanted 2 or more that differ");
  }
  ClockLine line;
  line.first_cycles = read.front().cycles;
  line.first_ns = read.front().ns;
  const auto cycles = [&](const TimelineAnchor& a) {
    return static_cast<double>(a.cycles - line.first_cycles);
  };
  const auto ns = [&](const TimelineAnchor& a) {
    return static_cast<double>(a.ns - line.first_ns);
  };
  for (const TimelineAnchor& a : read) {
    line.cycles += cycles(a) / static_cast<double>(read.size());
    line.ns += ns(a) / static_cast<double>(read.size());
  }
  double both = 0, square = 0;
  for (const TimelineAnchor& a : read) {
    both += (cycles(a) - line.cycles) * (ns(a) - line.ns);
    square += (cycles(a) - line.cycles) * (cycles(a) - line.cycles);
  }
  line.ns_per_cycle = both / square;
  return line;
}

// All blocks' lines, and what they say of the clock.
std::vector<ClockLine> fit_clocks(const std::string& who, const RecordedLaunch& launch,
                                  Timeline& timeline) {
  const size_t readings = launch.anchors.size() / static_cast<size_t>(std::max(launch.blocks, 1));
  std::vector<ClockLine> lines;
  for (int block = 0; block < launch.blocks; ++block) {
    const std::span all(launch.anchors.data() + static_cast<size_t>(block) * readings, readings);
    const ClockLine line = fit_clock(who, block, all);
    for (const TimelineAnchor& a : all) {
      if (a.ns == 0) continue;
      const double distance = static_cast<double>(a.ns - line.first_ns) - line.at(a.cycles);
      timeline.clock_error_ns = std::max(timeline.clock_error_ns, std::abs(distance));
      const auto step = static_cast<double>(a.timer_step_ns);
      if (step > 0 && (timeline.clock_step_ns == 0 || step < timeline.clock_step_ns))
        timeline.clock_step_ns = step;
    }
    lines.push_back(line);
  }
  return lines;
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
                  const ClockLine& line, unsigned long long first_ns,
                  std::vector<TimelineSpan>& spans) {
  const auto ns = [&](const TimelineEvent& e) {
    return static_cast<int64_t>(line.first_ns - first_ns) + std::llround(line.at(e.cycles));
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
  const std::vector<ClockLine> lines = fit_clocks(who, launch, timeline);
  unsigned long long first_ns = ~0ull;
  for (const ClockLine& line : lines) first_ns = std::min(first_ns, line.first_ns);
  const size_t roles = launch.roles.size();
  for (size_t track = 0; track < launch.tracks.size(); ++track) {
    TimelineSpan span;
    span.block = static_cast<int32_t>(track / roles);
    span.role = static_cast<int8_t>(track % roles);
    append_track(who, launch.tracks[track], span, lines[track / roles], first_ns, timeline.spans);
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
