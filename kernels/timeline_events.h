// The records that a timeline-recording kernel writes into device memory. The shipped kernels record nothing:
// each has a separate recording instance (plain/instances/recorded.cu, ring/instances/recorded.cu).
//
// The clock. All multiprocessors share %globaltimer, but its step is up to 1 us, and reading it takes as long
// as a load from L2. %clock64 is exact to a cycle and costs one instruction, but each multiprocessor has its
// own. So events carry %clock64, and each block reads both clocks at least once a step, just after the timer
// has changed; timeline_clock.h makes one clock of these readings.
#pragma once

#include "kernels/partition.h"
#include "kernels/phase.h"
#include "references/span_kind.h"

namespace mkbench {

// The track is in state `what` from clock value `cycles` on.
struct alignas(16) TimelineEvent {
  unsigned long long cycles;
  unsigned what;  // timeline_state()
  int step;
};

// `what` of the last event of a track.
inline constexpr unsigned kTrackEnd = 0xffffffffu;
// In place of a phase: take phase, layer and step from the event before (kSameSite) or the next one (kNextSite).
inline constexpr unsigned kSameSite = 0xfeu, kNextSite = 0xffu;

// Kind in bits 0-7, phase in 8-15, layer + 1 in 16-31.
MKBENCH_HD constexpr unsigned timeline_state(SpanKind kind, Phase phase, int layer) {
  return static_cast<unsigned>(kind) | static_cast<unsigned>(phase) << 8 |
         static_cast<unsigned>(layer + 1) << 16;
}

MKBENCH_HD constexpr unsigned timeline_state(SpanKind kind, unsigned other_site) {
  return static_cast<unsigned>(kind) | other_site << 8;
}

// Both clocks of a block at one moment.
struct alignas(16) TimelineAnchor {
  unsigned long long ns;      // the timer's value just after it changed; 0: not written
  unsigned long long cycles;  // the multiprocessor's clock then
  unsigned timer_step_ns;     // by how much the timer had changed; 0: no change
  unsigned read_cycles;       // how long this reading of the timer took
};

// How often a block reads its clocks in each step: `wanted` times, but fewer in a launch of many steps, whose
// readings would take gigabytes.
MKBENCH_HD constexpr int readings_per_step(int wanted, int steps) {
  constexpr int kMostOfLaunch = 4096;
  const int room = kMostOfLaunch / (steps > 0 ? steps : 1);
  return room < 1 ? 1 : room < wanted ? room : wanted;
}

// Device memory for the timeline of one launch. Each role of each block has a track: block * roles + role.
struct TimelineBuffers {
  TimelineEvent* events;    // (tracks, room)
  unsigned* counts;         // (tracks) events, including those that did not fit
  TimelineAnchor* anchors;  // (blocks, steps * readings a step + 1)
  unsigned room;            // capacity of a track in events
};

}  // namespace mkbench
