// The device side of a timeline: one thread of each role of a block writes the role's events.
#pragma once

#include "kernels/ptx.cuh"
#include "kernels/timeline_events.h"

namespace mkbench {

// The compiler cannot move the clock read past waits and barriers: all are volatile.
__device__ __forceinline__ void write_event(TimelineEvent* at, unsigned what, int step) {
  const unsigned long long cycles = ptx::sm_cycles();
  const auto site = static_cast<unsigned long long>(static_cast<unsigned>(step)) << 32 | what;
  asm volatile("st.global.v2.u64 [%0], {%1,%2};" ::"l"(at), "l"(cycles), "l"(site));
}

// Reads both clocks a few times, each time as soon as the timer changes, and keeps the quickest reading; after some
// 5 us without a change, keeps the latest one. The timer was sampled at some moment between `asked` and `told`.
__device__ __forceinline__ void write_anchor(TimelineAnchor* at) {
  constexpr unsigned kPatienceCycles = 10000;
  constexpr int kChanges = 3;
  // Low words suffice for differences, and plain has no register to spare.
  const auto begin = static_cast<unsigned>(ptx::sm_cycles());
  auto before = static_cast<unsigned>(ptx::global_ns());
  unsigned least = ~0u;
  bool patient = true;
#pragma unroll 1
  for (int changes = 0; changes < kChanges && patient;) {
    const unsigned long long asked = ptx::sm_cycles(), now = ptx::global_ns();
    const auto told = static_cast<unsigned>(ptx::sm_cycles_after(now));
    const unsigned took = told - static_cast<unsigned>(asked);
    const unsigned step = static_cast<unsigned>(now) - before;
    patient = told - begin < kPatienceCycles;
    if (took < least && (step != 0 || (!patient && changes == 0))) {
      least = took;
      at->ns = now;
      at->cycles = asked + took / 2;
      at->timer_step_ns = step;
      at->read_cycles = took;
    }
    changes += step != 0 ? 1 : 0;
    before = static_cast<unsigned>(now);
  }
}

// One thread's place in its track, in registers. All threads of a warp count events, so that the warp does not
// diverge; only the thread whose begin() had `writes` stores them.
template <bool kRecords>
struct TrackWriter {
  __device__ __forceinline__ void begin(const TimelineBuffers&, int /*track*/, bool /*writes*/) {}
  __device__ __forceinline__ void enter(SpanKind, Phase, int /*layer*/, int /*step*/) {}
  __device__ __forceinline__ void mark(SpanKind) {}
  __device__ __forceinline__ void end(int /*track*/) {}
};

template <>
struct TrackWriter<true> {
  const TimelineBuffers* buffers;
  unsigned next,
      last;  // places in TimelineBuffers::events; `last` is 0 in threads that do not write

  __device__ __forceinline__ void begin(const TimelineBuffers& t, int track, bool writes) {
    buffers = &t;
    next = static_cast<unsigned>(track) * t.room;
    last = writes ? next + t.room : 0;
  }
  // From now on the thread is in this phase.
  __device__ __forceinline__ void enter(SpanKind kind, Phase phase, int layer, int step) {
    put(timeline_state(kind, phase, layer), step);
  }
  // From now on the thread does `kind`, in the same phase as before.
  __device__ __forceinline__ void mark(SpanKind kind) { put(timeline_state(kind, kSameSite), 0); }
  // From now on the thread does `kind` for the phase that it enters next.
  __device__ __forceinline__ void mark_next(SpanKind kind) {
    put(timeline_state(kind, kNextSite), 0);
  }
  // Ends the track.
  __device__ __forceinline__ void end(int track) {
    put(kTrackEnd, 0);
    const unsigned first = static_cast<unsigned>(track) * buffers->room;
    if (last != 0) buffers->counts[track] = next - first;
  }

 private:
  __device__ __forceinline__ void put(unsigned what, int step) {
    if (next < last) write_event(buffers->events + next, what, step);
    ++next;
  }
};

}  // namespace mkbench
