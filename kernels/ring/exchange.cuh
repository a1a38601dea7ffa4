// The exchange of results between blocks, through words in global memory. There is no fence, no
// counter and no grid barrier: every word carries its own readiness, so the store that publishes a
// value also announces it, and the load that sees it also fetches it (0.9-1.0 us among 132 blocks
// of an H100, against 1.5 us for a counter and a read).
//
//   word                      size      read by               ready when
//   qkv, swiglu               4 bytes   the group's 16 blocks epoch equals the layer's (8 bits)
//   partials                  16 bytes  the group's 16 blocks epoch equals the layer's (8 bits)
//   score_maxima              16 bytes  the group's 16 blocks epoch equals the layer's (32 bits)
//   attention_out, mlp_out    8 bytes   all blocks            8 arrivals counted (fixed_point.h)
//   best                      16 bytes  all blocks            epoch equals the step's (32 bits)
//   rows_written              4 bytes   the group's 16 blocks it equals the step's epoch (32 bits)
//
// An epoch is the number of the layer that a word's value was written for, counted over all steps
// of the launch (8 bits: 1 .. 255, then 1 again), or the number of the step. A word with an epoch
// is written at most once in each, so a reader finds either the value that it waits for or an older
// one. 8 bits suffice for words that are written in every layer, because such a word is never more
// than one epoch behind (partials: epoch 0 until the launch changes to split mode, then written in
// every layer). All words begin as 0, which is no epoch's number.
#pragma once

#include "kernels/phase.h"
#include "kernels/ring/block.cuh"
#include "kernels/ring/fault_word.h"
#include "kernels/ring/fixed_point.h"

namespace mkbench::ring {

__device__ __forceinline__ unsigned next_epoch(unsigned epoch) {
  return epoch == 255 ? 1 : epoch + 1;
}

// Where in a step a wait stands, for the fault report.
struct Site {
  Phase phase;
  int layer, position;
};

// Raises a fault. Only the first fault of a launch is kept; from then on every wait gives up.
__device__ __forceinline__ void raise(const LaunchParams& p, int what, const Site& at,
                                      unsigned expected, unsigned seen) {
  atomicCAS(p.fault, FaultWord{0},
            pack_fault(what, static_cast<int>(at.phase), at.layer, static_cast<int>(blockIdx.x),
                       at.position, expected, seen));
}

__device__ __forceinline__ bool any_fault(const LaunchParams& p) {
  return ptx::load_relaxed(reinterpret_cast<const unsigned*>(p.fault) + 1) != 0;  // upper half
}

// The clock that bounds waits: 1.024 us a tick, wraps after 73 minutes.
__device__ __forceinline__ unsigned clock_ticks() {
  return static_cast<unsigned>(ptx::global_ns() >> 10);
}

// Whether a wait must fail, because its time bound has expired or another block has raised a fault.
// Values read after that are garbage, every later wait gives up too, and the launch ends at the
// token's end. Waits call this at every 256th poll only: reading the timer takes as long as a poll.
__device__ __forceinline__ bool give_up(const LaunchParams& p, const Site& at, unsigned expected,
                                        unsigned seen, bool ready, unsigned tries,
                                        unsigned& start) {
  const unsigned now = clock_ticks();
  if (tries == 256) start = now;
  const bool late = now - start > p.spin_limit_us;
  if (late && !ready) raise(p, kRaisedHang, at, expected, seen);
  return (late && !ready) || any_fault(p);
}

// A warp's wait: repeats `poll`, which looks at a lane's own word, until it is true in all lanes.
// All lanes leave together: lanes that leave early keep the warp diverged afterwards, +15 us a
// token (H200). The first poll is outside of the loop, which takes 20 us a token off the dependency
// chain.
template <typename Poll>
__device__ __forceinline__ void warp_wait_until(const LaunchParams& p, const Site& at,
                                                unsigned expected, Poll poll) {
  unsigned tries = 0, start = 0, seen = 0;
  if (__all_sync(~0u, poll(seen))) return;
#pragma unroll 1
  for (;;) {
    const bool ready = poll(seen);
    if (__all_sync(~0u, ready)) return;
    if (__builtin_expect((++tries & 255u) != 0, 1)) continue;
    if (__any_sync(~0u, give_up(p, at, expected, seen, ready, tries, start))) return;
  }
}

// A single lane's wait: repeats `poll` until it is true.
template <typename Poll>
__device__ __forceinline__ void lane_wait_until(const LaunchParams& p, const Site& at,
                                                unsigned expected, Poll poll) {
  unsigned tries = 0, start = 0, seen = 0;
#pragma unroll 1
  while (!poll(seen)) {
    if ((++tries & 255u) == 0 && give_up(p, at, expected, seen, false, tries, start)) return;
  }
}

// A consumer's wait for a copy of its own block. All lanes poll one barrier: 16 warps wait here
// most of the time, and their polling delays the publisher and the loader (a barrier for each lane
// and a flag checked in every iteration cost 20 us a token, H200). No time bound is needed: while a
// block is stuck here all others wait for its results, and the first fault that one of them raises
// ends this wait.
__device__ __forceinline__ void wait_barrier(const LaunchParams& p, unsigned barrier,
                                             unsigned parity) {
  unsigned tries = 0;
#pragma unroll 1
  while (!ptx::barrier_try_wait(barrier, parity)) {
    if ((++tries & 4095u) == 0 && any_fault(p)) return;
  }
}

// --- 32-bit words

// The upper 24 bits of a word: sign, exponent and 15 bits of mantissa, rounded to nearest; NaN
// stays NaN. The lower 8 bits are the epoch.
__device__ __forceinline__ unsigned word24(float x) {
  return x != x ? 0x7fc00000u : (__float_as_uint(x) + 0x80u) & 0xffffff00u;
}
__device__ __forceinline__ float word_value(unsigned word) {
  return __uint_as_float(word & 0xffffff00u);
}
__device__ __forceinline__ bool word_ready(unsigned word, unsigned epoch) {
  return ((word ^ epoch) & 0xffu) == 0;
}
__device__ __forceinline__ void publish_word(unsigned* p, float x, unsigned epoch) {
  ptx::store_relaxed(p, word24(x) | epoch);
}

template <RingAblation kAblation>
__device__ __forceinline__ float await_word(const LaunchParams& p, const Site& at,
                                            const unsigned* word, unsigned epoch) {
  unsigned v;
  warp_wait_until(p, at, epoch, [&](unsigned& seen) {
    v = ptx::load_relaxed(word);
    seen = v & 0xffu;
    return word_ready(v, epoch) || kAblation == RingAblation::kNoWaits;
  });
  return word_value(v);
}

// Waits for two neighbouring words.
template <RingAblation kAblation>
__device__ __forceinline__ float2 await_words(const LaunchParams& p, const Site& at,
                                              const unsigned* words, unsigned epoch) {
  uint2 v;
  warp_wait_until(p, at, epoch, [&](unsigned& seen) {
    v = ptx::load_relaxed2(words);
    seen = v.x & 0xffu;
    return (word_ready(v.x, epoch) && word_ready(v.y, epoch)) ||
           kAblation == RingAblation::kNoWaits;
  });
  return make_float2(word_value(v.x), word_value(v.y));
}

// --- 16-byte words of attention partials: four numerators of 24 bits; the four low bytes hold a
// denominator of 24 bits and the epoch

struct Partial {
  float numerators[4];  // dimensions 2j, 2j + 1 of the warp's 8: of head 0, then of head 1
  float denominator;
};

__device__ __forceinline__ void publish_partial(unsigned* p, const Partial& x, unsigned epoch) {
  const unsigned d = word24(x.denominator);
  ptx::store_relaxed16(
      p, make_uint4(word24(x.numerators[0]) | d >> 24, word24(x.numerators[1]) | (d >> 16 & 0xffu),
                    word24(x.numerators[2]) | (d >> 8 & 0xffu), word24(x.numerators[3]) | epoch));
}

__device__ __forceinline__ Partial partial_of(uint4 w) {
  const unsigned d = w.x << 24 | (w.y & 0xffu) << 16 | (w.z & 0xffu) << 8;
  return {{word_value(w.x), word_value(w.y), word_value(w.z), word_value(w.w)}, __uint_as_float(d)};
}

// The sum of two partials; both words are polled together, which is one round trip.
template <RingAblation kAblation>
__device__ __forceinline__ Partial await_partials(const LaunchParams& p, const Site& at,
                                                  const unsigned* first, const unsigned* second,
                                                  unsigned epoch) {
  uint4 a, b;
  warp_wait_until(p, at, epoch, [&](unsigned& seen) {
    a = ptx::load_relaxed16(first);
    b = ptx::load_relaxed16(second);
    seen = a.w & 0xffu;
    return (word_ready(a.w, epoch) && word_ready(b.w, epoch)) ||
           kAblation == RingAblation::kNoWaits;
  });
  const Partial x = partial_of(a), y = partial_of(b);
  return {{x.numerators[0] + y.numerators[0], x.numerators[1] + y.numerators[1],
           x.numerators[2] + y.numerators[2], x.numerators[3] + y.numerators[3]},
          x.denominator + y.denominator};
}

// --- the residual stream

// Adds one lane's two rows to every replica of the accumulator. The range check follows the
// publication, so that it delays no reader.
template <typename L, RingAblation kAblation>
__device__ __forceinline__ void publish_contribution(const LaunchParams& p, const Site& at,
                                                     FixedWord* accumulator, int row0, float x0,
                                                     int row1, float x1) {
  const FixedWord a = fixed_contribution(__float2ll_rn(x0 * kFixedScale));
  const FixedWord b = fixed_contribution(__float2ll_rn(x1 * kFixedScale));
#pragma unroll
  for (int r = 0; r < kReplicas; ++r) {
    ptx::add_relaxed(accumulator + r * L::kHidden + row0, a);
    ptx::add_relaxed(accumulator + r * L::kHidden + row1, b);
  }
  if (computes_tokens(kAblation) && !(fabsf(x0) < kFixedLimit && fabsf(x1) < kFixedLimit)) {
    raise(p, kRaisedRange, at, 0, 0);
  }
}

// Waits for the groups' contributions to this thread's two elements and adds them to its residual.
// `which` is the index into Shared::seen: 0 for attention_out, 1 for mlp_out.
template <typename L, RingAblation kAblation>
__device__ __forceinline__ float2 await_residual(const LaunchParams& p, const Site& at,
                                                 const Lane& me, int block, Shared<L>& s,
                                                 const FixedWord* accumulator, int which) {
  const int t = me.warp * 32 + me.lane;
  const ulonglong2 before = s.seen[which][t];
  float2 h = s.residual[t];
  const FixedWord* words = accumulator + block % kReplicas * L::kHidden + 2 * t;
  ulonglong2 now;
  warp_wait_until(p, at, kGroups, [&](unsigned& seen) {
    now = ptx::load_relaxed2(words);
    seen = fixed_arrivals(now.x - before.x);
    return (seen == kGroups && fixed_arrivals(now.y - before.y) == kGroups) ||
           kAblation == RingAblation::kNoWaits;
  });
  s.seen[which][t] = now;
  h.x += fixed_sum(now.x - before.x);
  h.y += fixed_sum(now.y - before.y);
  s.residual[t] = h;
  return h;
}

}  // namespace mkbench::ring
