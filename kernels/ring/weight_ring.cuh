// The ring: kRingSlots slots of 16 KiB in shared memory that one thread fills by bulk copies, in
// stream order, through phase, layer and token boundaries, and that 16 warps empty. Memory never
// waits for the dependency chain as long as the ring has room.
//
// Slot i has two barriers: full (one arrival, and the bytes) and empty (16 arrivals: a warp's share
// is one, whoever reads more counts more). Loader and consumers each keep slot number and parity.
//
// Bytes in flight are bounded and copies are paced: more in flight stretches the L2 latency tail
// that every exchange waits for, fewer starves single blocks (tuning.h has the figures).
#pragma once

#include "kernels/ring/exchange.cuh"

namespace mkbench::ring {

struct RingPosition {
  int slot = 0;
  unsigned parity = 0;
  __device__ __forceinline__ void advance() {
    if (++slot == kRingSlots) {
      slot = 0;
      parity ^= 1;
    }
  }
  __device__ __forceinline__ void advance(int slots) {  // slots <= kRingSlots
    slot += slots;
    if (slot >= kRingSlots) {
      slot -= kRingSlots;
      parity ^= 1;
    }
  }
  // Where `slots` before this one lies; its parity is not known.
  __device__ __forceinline__ RingPosition behind(int slots) const {
    const int before = slot - slots;
    return {before < 0 ? before + kRingSlots : before, 0};
  }
  // `slots` ahead of this one.
  __device__ __forceinline__ RingPosition ahead(int slots) const {
    RingPosition r = *this;
    r.advance(slots);
    return r;
  }
};

// The consumers' end of the ring.
template <RingAblation kAblation>
struct RingReader {
  static constexpr bool kLoads = kAblation != RingAblation::kNoLoads;
  const LaunchParams& p;
  const Shared& s;
  const char* slots;
  RingPosition at;

  __device__ __forceinline__ const char* data(const RingPosition& r) const {
    return slots + r.slot * kSlotBytes;
  }
  __device__ __forceinline__ void await(const RingPosition& r) const {
    if (kLoads) wait_barrier(p, ptx::shared_address(s.full) + 8 * r.slot, r.parity);
  }
  // After a __syncwarp(): `shares` of the slot's 16 have been read.
  __device__ __forceinline__ void release(const RingPosition& r, unsigned shares) const {
    if (kLoads) ptx::barrier_arrive(ptx::shared_address(s.empty) + 8 * r.slot, shares);
  }

  // Waits for the next `kSlots` slots. One look at all of them, a lane each, is 90 ns a slot faster
  // than one after the other (H200); but nobody may wait like that, see wait_barrier().
  template <int kSlots>
  __device__ __forceinline__ void await_slots(const Lane& me) const {
    if (!kLoads || kSmallRing) return;  // there, fetch() waits
    const RingPosition mine = at.ahead(me.lane < kSlots ? me.lane : 0);
    const unsigned barrier = ptx::shared_address(s.full) + 8 * mine.slot;
    const bool all = __all_sync(~0u, ptx::barrier_test_wait(barrier, mine.parity));
    __syncwarp();  // what each lane has seen arrive holds for all
    if (all) return;
#pragma unroll 1
    for (int i = 0; i < kSlots; ++i) await(at.ahead(i));
  }

  // The warp's fragments of the next kFragments / 2 slots, after await_slots(), into registers.
  template <int kFragments>
  __device__ __forceinline__ void fetch(const Lane& me, uint4 (&w)[kFragments]) {
    constexpr int kSlots = kFragments / 2;
#pragma unroll
    for (int i = 0; i < kSlots; ++i) {
      if (kSmallRing) await(at);
      const uint4* q = reinterpret_cast<const uint4*>(data(at)) + me.warp * 64 + me.lane;
      w[2 * i] = q[0];
      w[2 * i + 1] = q[32];
      if (kSmallRing) {
        __syncwarp();
        if (me.lane == 0) release(at, 1);
      }
      at.advance();
    }
    if (kSmallRing) return;
    __syncwarp();
    if (me.lane < kSlots) release(at.behind(kSlots - me.lane), 1);
  }
};

// The loader's end, one thread. It has 900 cycles a slot, shares a scheduler with four consumers,
// and each of its instructions costs a token what it takes itself: 40 cycles a slot are 13 us
// (H200). So no value comes back from a wait, where the launch ends the thread does, and the copies
// in flight are not counted: a copy waits for the one `copies_in_flight` slots before it.
struct RingWriter {
  const LaunchParams& p;
  Shared& s;
  unsigned slots, full, empty;  // addresses
  unsigned long long policy;
  RingPosition at{0, 1};  // next slot to fill
  // The copy that has to arrive before the next one is issued. Before the first turn barriers that
  // nobody has used yet stand for it: they pass for the turn before.
  RingPosition oldest{0, 0};
  int position = 0;  // of the running step
  StreamPace pace{0, 0};
  unsigned next_issue = 0;

  // More copies in flight than before: the next ones wait for older copies, which have arrived;
  // fewer: the next one waits for a younger copy.
  __device__ __forceinline__ void set_pace(const StreamPace& next) {
    int slot = oldest.slot + pace.copies_in_flight - next.copies_in_flight;
    if (slot < 0 || slot >= kRingSlots) {
      slot += slot < 0 ? kRingSlots : -kRingSlots;
      oldest.parity ^= 1;
    }
    oldest.slot = slot;
    pace = next;
  }

  // No copy may arrive in a block that is gone: all slots, the oldest copy first, which lies where
  // the next one would.
  __device__ __forceinline__ void leave() {
#pragma unroll 1
    for (int i = 0; i < kRingSlots; ++i, at.advance()) {
      unsigned tries = 0;
#pragma unroll 1
      while (!ptx::barrier_try_wait(full + 8 * at.slot, at.parity) && ++tries != 1u << 28) {
      }
    }
    ptx::exit_thread();
  }

  // Every 256 tries of a wait that began at `start`. Twice the bound of other waits: those know
  // what they wait for, and are to be heard first.
  __device__ __forceinline__ void consider_leaving(unsigned tries, unsigned& start, bool may_end) {
    const unsigned now = clock_ticks();
    if (tries == 256) start = now;
    const bool late = now - start > 2 * p.spin_limit_us;
    if (late) raise(p, kRaisedHang, Site{Phase::kEmbed, kOwnRing, position}, 0, 0);
    if (late || (may_end && s.ended != 0)) leave();
  }

  // `may_end`: the launch may end meanwhile. Not where a copy is waited for: it arrives by itself,
  // and consumers still fetch the slots before the end.
  __device__ __forceinline__ void wait(unsigned barrier, unsigned parity, bool may_end) {
    unsigned tries = 0, start = 0;
#pragma unroll 1
    while (!ptx::barrier_try_wait(barrier, parity)) {
      if (__builtin_expect((++tries & 255u) == 0, 0)) consider_leaving(tries, start, may_end);
    }
  }

  // Until the KV rows of `steps` steps are visible to this block's copies.
  __device__ __forceinline__ void wait_for_rows(int steps) {
    unsigned tries = 0, start = 0;
#pragma unroll 1
    while (s.rows_seen < steps) {
      if ((++tries & 255u) == 0) consider_leaving(tries, start, true);
    }
    __threadfence_block();
    ptx::proxy_fence();
  }

  // Room for `bytes` in the next slot; its barrier is armed before the wait for a place among the
  // copies in flight.
  __device__ __forceinline__ void open(unsigned bytes) {
    wait(empty + 8 * at.slot, at.parity, true);
    ptx::barrier_expect(full + 8 * at.slot, bytes);
    wait(full + 8 * oldest.slot, oldest.parity, false);
  }
  __device__ __forceinline__ void copy(const char* from, unsigned offset, unsigned bytes) {
    ptx::bulk_copy(slots + at.slot * kSlotBytes + offset, from, bytes, full + 8 * at.slot, policy);
  }
  __device__ __forceinline__ void close() {
    oldest.advance();
    at.advance();
  }

  // One slot from one place, paced: by a schedule that is kept before the waits, so that nothing
  // stands between a copy's arrival and the next one's issue.
  __device__ __forceinline__ void load(const char* from, unsigned bytes) {
    if (pace.gap_cycles > 0) {
      const unsigned now = ptx::sm_cycles_low();
      if (next_issue - now > static_cast<unsigned>(pace.gap_cycles)) {
        next_issue = now;  // late, or the schedule is so old that the clock has wrapped
      } else {
#pragma unroll 1
        while (static_cast<int>(ptx::sm_cycles_low() - next_issue) < 0) {
        }
      }
      // Half a tile takes half the time.
      next_issue += bytes == kSlotBytes ? pace.gap_cycles : pace.gap_cycles / 2;
    }
    open(bytes);
    copy(from, 0, bytes);
    close();
  }
};

}  // namespace mkbench::ring
