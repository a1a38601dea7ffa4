// The ring: kRingSlots slots of 16 KiB in shared memory. One thread, the loader, fills them by bulk
// copies in stream order, across phase, layer and token boundaries; 16 consumer warps empty them.
// As long as the ring has room, memory never waits for the dependency chain.
//
// A slot has two mbarriers. `full` completes with one arrival and the copy's bytes, `empty` with 16
// arrivals: each warp arrives for the share of the slot that it has read. Loader and consumers each
// keep a slot number and a parity.
//
// The number of copies in flight is bounded and copies are paced: more copies in flight lengthen the
// L2 latency that every exchange waits for, fewer starve single blocks (figures: tuning.cpp,
// reports/perf.md).
#pragma once

#include "kernels/ring/exchange.cuh"
#include "kernels/timeline_record.cuh"

namespace mkbench::ring {

// A place in the ring: a slot, and the parity of its current use, which changes at each wrap.
template <typename L>
struct RingPosition {
  int slot = 0;
  unsigned parity = 0;
  __device__ __forceinline__ void advance() {
    if (++slot == kRingSlots<L>) {
      slot = 0;
      parity ^= 1;
    }
  }
  __device__ __forceinline__ void advance(int slots) {  // slots <= kRingSlots<L>
    slot += slots;
    if (slot >= kRingSlots<L>) {
      slot -= kRingSlots<L>;
      parity ^= 1;
    }
  }
  // The slot that lies `slots` before this one. Its parity is not set.
  __device__ __forceinline__ RingPosition<L> behind(int slots) const {
    const int before = slot - slots;
    return {before < 0 ? before + kRingSlots<L> : before, 0};
  }
  // The position `slots` ahead of this one.
  __device__ __forceinline__ RingPosition<L> ahead(int slots) const {
    RingPosition r = *this;
    r.advance(slots);
    return r;
  }
};

// The consumers' side of the ring.
template <typename L, RingAblation kAblation>
struct RingReader {
  static constexpr bool kLoads = kAblation != RingAblation::kNoLoads;
  const LaunchParams& p;
  const Shared<L>& s;
  const char* slots;
  RingPosition<L> at;
  TrackWriter<kAblation == RingAblation::kRecorded> track;

  __device__ __forceinline__ const char* data(const RingPosition<L>& r) const {
    return slots + r.slot * kSlotBytes;
  }
  __device__ __forceinline__ void await(const RingPosition<L>& r) const {
    if (kLoads) wait_barrier(p, ptx::shared_address(s.full) + 8 * r.slot, r.parity);
  }
  // await() amid a phase's work: a timeline shows a wait only if the copy has not arrived yet.
  __device__ __forceinline__ void await_within(const RingPosition<L>& r) {
    if constexpr (kAblation == RingAblation::kRecorded) {
      const unsigned barrier = ptx::shared_address(s.full) + 8 * r.slot;
      if (__all_sync(~0u, ptx::barrier_test_wait(barrier, r.parity))) return;
      track.mark(SpanKind::kWeights);
      await(r);
      track.mark(SpanKind::kBody);
    } else {
      await(r);
    }
  }
  // Releases `shares` of the slot's 16 shares. Called by one lane after a __syncwarp().
  __device__ __forceinline__ void release(const RingPosition<L>& r, unsigned shares) const {
    if (kLoads) ptx::barrier_arrive(ptx::shared_address(s.empty) + 8 * r.slot, shares);
  }

  // Waits for the next `kSlots` slots. Polling all of them once, one per lane, is 90 ns a slot
  // faster than one after the other (H200). If that poll fails, the warp polls one barrier at a
  // time, for the reason given at wait_barrier().
  template <int kSlots>
  __device__ __forceinline__ void await_slots(const Lane& me) const {
    if (!kLoads || kSmallRing<L>) return;  // in a small ring, fetch() waits
    const RingPosition<L> mine = at.ahead(me.lane < kSlots ? me.lane : 0);
    const unsigned barrier = ptx::shared_address(s.full) + 8 * mine.slot;
    const bool all = __all_sync(~0u, ptx::barrier_test_wait(barrier, mine.parity));
    __syncwarp();  // each lane's slot is now visible to all lanes
    if (all) return;
#pragma unroll 1
    for (int i = 0; i < kSlots; ++i) await(at.ahead(i));
  }

  // Loads the warp's fragments of the next kFragments / 2 slots into registers, after
  // await_slots(), and releases the slots.
  template <int kFragments>
  __device__ __forceinline__ void fetch(const Lane& me, uint4 (&w)[kFragments]) {
    constexpr int kSlots = kFragments / 2;
#pragma unroll
    for (int i = 0; i < kSlots; ++i) {
      if (kSmallRing<L>) await(at);
      const uint4* q = reinterpret_cast<const uint4*>(data(at)) + me.warp * 64 + me.lane;
      w[2 * i] = q[0];
      w[2 * i + 1] = q[32];
      if (kSmallRing<L>) {
        __syncwarp();
        if (me.lane == 0) release(at, 1);
      }
      at.advance();
    }
    if (kSmallRing<L>) return;
    __syncwarp();
    if (me.lane < kSlots) release(at.behind(kSlots - me.lane), 1);
  }
};

// The loader's side of the ring, one thread. The loader is on the critical path: it has 900 cycles
// a slot, shares a scheduler with four consumer warps, and 40 extra cycles a slot cost 13 us a
// token (H200). Therefore no wait returns a value, the thread exits inside a wait when the launch
// ends, and the copies in flight are not counted: each copy waits for the copy `copies_in_flight`
// slots before it.
template <typename L, bool kRecords>
struct RingWriter {
  const LaunchParams& p;
  Shared<L>& s;
  unsigned slots, full, empty;  // addresses in shared memory
  unsigned long long policy;
  RingPosition<L> at{0, 1};  // next slot to fill
  // The copy that has to arrive before the next one is issued. The first set_pace() moves it to an
  // unused slot with parity 1, for which a wait returns at once.
  RingPosition<L> oldest{0, 0};
  int position = 0;  // of the running step
  StreamPace pace{0, 0};
  unsigned next_issue = 0;
  TrackWriter<kRecords> track{};

  // With more copies in flight than before, the next copies wait for older ones, which have
  // arrived; with fewer, the next copy waits for a younger one.
  __device__ __forceinline__ void set_pace(const StreamPace& next) {
    int slot = oldest.slot + pace.copies_in_flight - next.copies_in_flight;
    if (slot < 0 || slot >= kRingSlots<L>) {
      slot += slot < 0 ? kRingSlots<L> : -kRingSlots<L>;
      oldest.parity ^= 1;
    }
    oldest.slot = slot;
    pace = next;
  }

  // Ends the loader. It first waits for all slots, because no copy may arrive in a block that has
  // exited; the oldest copy, whose slot is the next to fill, comes first.
  __device__ __forceinline__ void leave() {
    track.end(static_cast<int>(blockIdx.x) * kTracks + kLoaderTrack);
#pragma unroll 1
    for (int i = 0; i < kRingSlots<L>; ++i, at.advance()) {
      unsigned tries = 0;
#pragma unroll 1
      while (!ptx::barrier_try_wait(full + 8 * at.slot, at.parity) && ++tries != 1u << 28) {
      }
    }
    ptx::exit_thread();
  }

  // Called every 256 tries of a wait that began at `start`. The loader's time bound is twice as long as
  // that of other waits: their faults name the missing result, so they should be raised first.
  __device__ __forceinline__ void consider_leaving(unsigned tries, unsigned& start, bool may_end) {
    const unsigned now = clock_ticks();
    if (tries == 256) start = now;
    const bool late = now - start > 2 * p.spin_limit_us;
    if (late) raise(p, kRaisedHang, Site{Phase::kEmbed, kOwnRing, position}, 0, 0);
    if (late || (may_end && s.ended != 0)) leave();
  }

  // `may_end`: the loader may leave because the launch has ended. It is false for waits for a copy:
  // a copy always arrives, and consumers still fetch the slots before the end.
  __device__ __forceinline__ void wait(unsigned barrier, unsigned parity, bool may_end) {
    unsigned tries = 0, start = 0;
#pragma unroll 1
    while (!ptx::barrier_try_wait(barrier, parity)) {
      if (__builtin_expect((++tries & 255u) == 0, 0)) consider_leaving(tries, start, may_end);
    }
  }

  // Waits until the KV rows of the first `steps` steps are visible to this block's copies.
  __device__ __forceinline__ void wait_for_rows(int steps) {
    unsigned tries = 0, start = 0;
#pragma unroll 1
    while (s.rows_seen < steps) {
      if ((++tries & 255u) == 0) consider_leaving(tries, start, true);
    }
    __threadfence_block();
    ptx::proxy_fence();
  }

  __device__ __forceinline__ void wait_for_room() {
    const unsigned barrier = empty + 8 * at.slot;
    if (kRecords && ptx::barrier_test_wait(barrier, at.parity)) return;
    track.mark(SpanKind::kRoom);
    wait(barrier, at.parity, true);
    track.mark(SpanKind::kBody);
  }

  // Waits until the next slot is empty and arms its barrier for `bytes`, then waits for a place
  // among the copies in flight.
  __device__ __forceinline__ void open(unsigned bytes) {
    wait_for_room();
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

  // Fills one slot from one place. It waits for the pace's gap first, then for room and an older
  // copy, so that the next copy is issued as soon as that older one arrives.
  __device__ __forceinline__ void load(const char* from, unsigned bytes) {
    if (pace.gap_cycles > 0) {
      const unsigned now = ptx::sm_cycles_low();
      if (next_issue - now > static_cast<unsigned>(pace.gap_cycles)) {
        next_issue = now;  // late, or the clock has wrapped since the last issue
      } else {
#pragma unroll 1
        while (static_cast<int>(ptx::sm_cycles_low() - next_issue) < 0) {
        }
      }
      // Half a tile has half the gap.
      next_issue += bytes == kSlotBytes ? pace.gap_cycles : pace.gap_cycles / 2;
    }
    open(bytes);
    copy(from, 0, bytes);
    close();
  }
};

}  // namespace mkbench::ring
