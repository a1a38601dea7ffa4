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
  const char* slots;
  unsigned full, empty;  // addresses of the first barriers
  RingPosition at;

  __device__ __forceinline__ const char* data(const RingPosition& r) const {
    return slots + r.slot * kSlotBytes;
  }
  __device__ __forceinline__ void await(const Site& site, const RingPosition& r) const {
    if (kLoads) wait_barrier(p, site, full + 8 * r.slot, r.parity);
  }
  // After a __syncwarp(): `shares` of the slot's 16 have been read.
  __device__ __forceinline__ void release(const RingPosition& r, unsigned shares) const {
    if (kLoads) ptx::barrier_arrive(empty + 8 * r.slot, shares);
  }

  // The warp's fragments of the next kFragments / 2 slots, into registers.
  template <int kFragments>
  __device__ __forceinline__ void fetch(const Site& site, const Lane& me, uint4 (&w)[kFragments]) {
    const RingPosition first = at;
#pragma unroll
    for (int i = 0; i < kFragments / 2; ++i) {
      await(site, at);
      const uint4* q = reinterpret_cast<const uint4*>(data(at)) + me.warp * 64 + me.lane;
      w[2 * i] = q[0];
      w[2 * i + 1] = q[32];
      at.advance();
    }
    __syncwarp();
    if (me.lane < kFragments / 2) release(first.ahead(me.lane), 1);
  }
};

// The loader's end, one thread.
struct RingWriter {
  const LaunchParams& p;
  Shared& s;
  unsigned slots, full, empty;  // addresses
  unsigned long long policy;
  RingPosition at{0, 1}, oldest{0, 0};  // next slot to fill; oldest copy not known to have arrived
  int in_flight = 0;
  StreamPace pace{};
  unsigned next_issue = 0;
  bool ended = false;

  // Waits for the ring's barrier, unless the launch ends first.
  __device__ __forceinline__ void wait(unsigned barrier, unsigned parity) {
    const Site site{Phase::kEmbed, -1, -1};
    if (ptx::barrier_try_wait(barrier, parity)) return;
    wait_until(p, site, parity, [&](unsigned&) {
      if (ptx::barrier_try_wait(barrier, parity)) return true;
      ended = s.ended != 0;
      return ended;
    });
  }

  // Room for one more slot of `bytes`: armed before its copies are issued. False when the launch
  // ends.
  __device__ __forceinline__ bool open(unsigned bytes) {
    wait(empty + 8 * at.slot, at.parity);
    if (ended) return false;
    ptx::barrier_expect(full + 8 * at.slot, bytes);
    while (in_flight >= pace.copies_in_flight) retire();
    return true;
  }
  __device__ __forceinline__ void retire() {
    wait(full + 8 * oldest.slot, oldest.parity);
    oldest.advance();
    --in_flight;
  }
  __device__ __forceinline__ void copy(const char* from, unsigned offset, unsigned bytes) {
    ptx::bulk_copy(slots + at.slot * kSlotBytes + offset, from, bytes, full + 8 * at.slot, policy);
  }
  __device__ __forceinline__ void close() {
    ++in_flight;
    at.advance();
  }
  __device__ __forceinline__ void keep_pace() {
    if (pace.gap_cycles == 0) return;
    const unsigned now = ptx::sm_cycles_low();
    if (static_cast<int>(now - next_issue) > 0) {
      next_issue = now;
    } else {
      while (static_cast<int>(ptx::sm_cycles_low() - next_issue) < 0) {
      }
    }
    next_issue += pace.gap_cycles;
  }

  __device__ __forceinline__ bool load_slot(const char* from) {
    if (!open(kSlotBytes)) return false;
    keep_pace();
    copy(from, 0, kSlotBytes);
    close();
    return true;
  }

  // No copy may arrive in a block that is gone.
  __device__ __forceinline__ void drain() {
    for (; in_flight > 0; --in_flight) {
      wait_barrier(p, Site{Phase::kEmbed, -1, -1}, full + 8 * oldest.slot, oldest.parity);
      oldest.advance();
    }
  }
};

}  // namespace mkbench::ring
