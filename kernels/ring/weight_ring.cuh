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
  const Shared& s;
  const char* slots;
  RingPosition at;

  __device__ __forceinline__ const char* data(const RingPosition& r) const {
    return slots + r.slot * kSlotBytes;
  }
  __device__ __forceinline__ void await(const RingPosition& r) const {
    if (kLoads) wait_barrier(ptx::shared_address(s.full) + 8 * r.slot, r.parity);
  }
  // After a __syncwarp(): `shares` of the slot's 16 have been read.
  __device__ __forceinline__ void release(const RingPosition& r, unsigned shares) const {
    if (kLoads) ptx::barrier_arrive(ptx::shared_address(s.empty) + 8 * r.slot, shares);
  }

  // The warp's fragments of the next kFragments / 2 slots, into registers.
  template <int kFragments>
  __device__ __forceinline__ void fetch(const Lane& me, uint4 (&w)[kFragments]) {
    constexpr int kSlots = kFragments / 2;
#pragma unroll
    for (int i = 0; i < kSlots; ++i) {
      await(at);
      const uint4* q = reinterpret_cast<const uint4*>(data(at)) + me.warp * 64 + me.lane;
      w[2 * i] = q[0];
      w[2 * i + 1] = q[32];
      at.advance();
    }
    __syncwarp();
    if (me.lane < kSlots) release(at.behind(kSlots - me.lane), 1);
  }
};

// The loader's end, one thread.
struct RingWriter {
  const LaunchParams& p;
  Shared& s;
  unsigned slots;  // address
  unsigned long long policy;
  RingPosition at{0, 1}, oldest{0, 0};  // next slot to fill; oldest copy not known to have arrived
  int in_flight = 0;
  StreamPace pace{};
  unsigned next_issue = 0;

  __device__ __forceinline__ unsigned full(const RingPosition& r) const {
    return ptx::shared_address(s.full) + 8 * r.slot;
  }

  // False when the launch ends first, be it because this wait's bound has run out.
  __device__ __forceinline__ bool wait(unsigned barrier, unsigned parity) {
    if (ptx::barrier_try_wait(barrier, parity)) return true;
    const bool ready = wait_until(p, Site{Phase::kEmbed, 0, p.position}, parity, [&](unsigned&) {
      return ptx::barrier_try_wait(barrier, parity) || s.ended != 0;
    });
    if (!ready) s.ended = 1;
    return s.ended == 0;
  }

  // Fills the next slot from one place, or each half from its own. Its barrier is armed before the
  // wait for room among the copies in flight.
  __device__ __forceinline__ bool load(const char* from, unsigned bytes, const char* second,
                                       unsigned second_bytes, bool paced) {
    if (!wait(ptx::shared_address(s.empty) + 8 * at.slot, at.parity)) return false;
    ptx::barrier_expect(full(at), bytes + second_bytes);
    while (in_flight >= pace.copies_in_flight) {
      if (!wait(full(oldest), oldest.parity)) return false;
      oldest.advance();
      --in_flight;
    }
    if (paced) keep_pace();
    const unsigned to = slots + at.slot * kSlotBytes;
    ptx::bulk_copy(to, from, bytes, full(at), policy);
    if (second_bytes > 0) ptx::bulk_copy(to + bytes, second, second_bytes, full(at), policy);
    ++in_flight;
    at.advance();
    return true;
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

  // No copy may arrive in a block that is gone.
  __device__ __forceinline__ void drain() {
    for (; in_flight > 0; --in_flight) {
      wait_until(p, Site{Phase::kEmbed, 0, p.position}, oldest.parity,
                 [&](unsigned&) { return ptx::barrier_try_wait(full(oldest), oldest.parity); });
      oldest.advance();
    }
  }
};

}  // namespace mkbench::ring
