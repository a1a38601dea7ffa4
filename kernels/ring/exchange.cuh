// The exchange between blocks. No fence, no counter, no grid barrier: every word carries its own
// readiness, so that the store that publishes a value also announces it and the load that sees it
// also fetches it (0.9-1.0 us among 132 blocks of an H100 against 1.5 for a counter and a read).
//
// - Results that 16 blocks read: 32-bit words {24 bits of an fp32, 8-bit epoch}; 16-byte words
// where
//   several values belong together.
// - The residual stream, which all blocks add to and read: fixed_point.h's words.
// - Epochs count a block's layers; a word is written once in each epoch that uses it, so what a
//   reader finds is either the value it waits for or an older one. 8 bits suffice for words that
//   are written in every layer, because they are never more than one epoch behind (partials: 0
//   until the launch's only switch of modes, then every layer); 0 is the initial state and no
//   epoch. Words of the token boundary and of the slow path have 32 bits.
#pragma once

#include "kernels/phase.h"
#include "kernels/ring/block.cuh"
#include "kernels/ring/fault_word.h"
#include "kernels/ring/fixed_point.h"

namespace mkbench::ring {

__device__ __forceinline__ unsigned next_epoch(unsigned epoch) {
  return epoch == 255 ? 1 : epoch + 1;
}

// Where a wait stands, for the fault report.
struct Site {
  Phase phase;
  int layer, position;
};

// The first to raise is the one that is heard; every wait gives up from then on.
__device__ __forceinline__ void raise(const LaunchParams& p, int what, const Site& at,
                                      unsigned expected, unsigned seen) {
  atomicCAS(p.fault, FaultWord{0},
            pack_fault(what, static_cast<int>(at.phase), at.layer, static_cast<int>(blockIdx.x),
                       at.position, expected, seen));
}

__device__ __forceinline__ bool any_fault(const LaunchParams& p) {
  return ptx::load_relaxed(reinterpret_cast<const unsigned*>(p.fault) + 1) != 0;  // its upper half
}

// A clock for bounds: 1.024 us a tick, wraps after 73 minutes.
__device__ __forceinline__ unsigned clock_ticks() {
  return static_cast<unsigned>(ptx::global_ns() >> 10);
}

// What every 256th look of a wait does besides: the timer read would double a look. True when the
// wait is over all the same: the bound has run out, or another block has raised; what follows is
// garbage then, every later wait gives up too, and the launch ends at the token's end.
__device__ __forceinline__ bool give_up(const LaunchParams& p, const Site& at, unsigned expected,
                                        unsigned seen, bool ready, unsigned tries,
                                        unsigned& start) {
  const unsigned now = clock_ticks();
  if (tries == 256) start = now;
  const bool late = now - start > p.spin_limit_us;
  if (late && !ready) raise(p, kRaisedHang, at, expected, seen);
  return (late && !ready) || any_fault(p);
}

// A warp's wait: repeats `poll`, which tells of a lane's own word, until it is true in all lanes.
// They ask together and leave together: lanes that leave one by one cost the code that follows its
// convergence, and with it 15 us a token (H200). The first look is outside of the loop: 20 us less
// on the chain.
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

// One lane's.
template <typename Poll>
__device__ __forceinline__ void lane_wait_until(const LaunchParams& p, const Site& at,
                                                unsigned expected, Poll poll) {
  unsigned tries = 0, start = 0, seen = 0;
#pragma unroll 1
  while (!poll(seen)) {
    if ((++tries & 255u) == 0 && give_up(p, at, expected, seen, false, tries, start)) return;
  }
}

// A consumer's wait for its own block. All lanes ask for one barrier: 16 warps wait here most of
// the time, and what they do meanwhile delays the publisher and the loader (lanes with a barrier
// each and a look at a flag every time cost 20 us a token, H200). No clock of its own: while a
// block is stuck here all others wait for its results, and the fault that the first of them raises
// ends this.
__device__ __forceinline__ void wait_barrier(const LaunchParams& p, unsigned barrier,
                                             unsigned parity) {
  unsigned tries = 0;
#pragma unroll 1
  while (!ptx::barrier_try_wait(barrier, parity)) {
    if ((++tries & 4095u) == 0 && any_fault(p)) return;
  }
}

// --- 32-bit words

// Sign, exponent and 15 bits of mantissa, to nearest; NaN stays NaN.
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

// --- 16-byte words of attention partials: four numerators of 24 bits, and in their low bytes a
// denominator of 24 bits and the epoch

struct Partial {
  float numerators[4];  // head 0: columns 2j, 2j + 1; head 1: the same
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

// The sum of two partials, polled together: one round trip.
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

// Adds one lane's two rows to all replicas. The check follows the publication: nobody waits for it.
template <RingAblation kAblation>
__device__ __forceinline__ void publish_contribution(const LaunchParams& p, const Site& at,
                                                     FixedWord* accumulator, int row0, float x0,
                                                     int row1, float x1) {
  const FixedWord a = fixed_contribution(__float2ll_rn(x0 * kFixedScale));
  const FixedWord b = fixed_contribution(__float2ll_rn(x1 * kFixedScale));
#pragma unroll
  for (int r = 0; r < kReplicas; ++r) {
    ptx::add_relaxed(accumulator + r * kHidden + row0, a);
    ptx::add_relaxed(accumulator + r * kHidden + row1, b);
  }
  if (kAblation == RingAblation::kNone && !(fabsf(x0) < kFixedLimit && fabsf(x1) < kFixedLimit)) {
    raise(p, kRaisedRange, at, 0, 0);
  }
}

// Waits for the groups' contributions to this thread's two elements and adds them to its residual.
// `which` accumulator: 0 attention_out, 1 mlp_out.
template <RingAblation kAblation>
__device__ __forceinline__ float2 await_residual(const LaunchParams& p, const Site& at,
                                                 const Lane& me, int block, Shared& s,
                                                 const FixedWord* accumulator, int which) {
  const int t = me.warp * 32 + me.lane;
  const ulonglong2 before = s.seen[which][t];
  float2 h = s.residual[t];
  const FixedWord* words = accumulator + block % kReplicas * kHidden + 2 * t;
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
