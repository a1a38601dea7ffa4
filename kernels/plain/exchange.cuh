// The exchange between phases: one grid-wide counter that only grows. A block arrives when its
// results are written; before the next phase it waits until all blocks have arrived. The counter
// is never reset while a launch runs, so no arrival can be lost and no stale count can let a block
// pass.
#pragma once

#include "kernels/phase.h"
#include "kernels/plain/block.cuh"

namespace mkbench::plain {

// first_count(): the exchange's initial count. reached(): compares counts by difference, because they wrap.
// before_arrival(): does nothing. The soak instances specialise them (instances/soak.cu).
template <typename S>
__device__ __forceinline__ unsigned first_count(const LaunchParams&) {
  return 0;
}
template <typename S>
__device__ __forceinline__ bool reached(unsigned seen, unsigned expected) {
  return static_cast<int>(seen - expected) >= 0;
}
template <typename S>
__device__ __forceinline__ void before_arrival(const LaunchParams&, unsigned /*expected*/) {}

// Mark in the timeline what thread 0 does from now on; no-ops in an instance that does not record.
template <typename S>
__device__ __forceinline__ void record(Shared<S>& s, SpanKind kind) {
  if constexpr (kRecords<S>) s.track.mark(kind);
}
template <typename S>
__device__ __forceinline__ void record_next(Shared<S>& s, SpanKind kind) {
  if constexpr (kRecords<S>) s.track.mark_next(kind);
}
template <typename S>
__device__ __forceinline__ void record_wait(const LaunchParams& p, Shared<S>& s, Phase phase,
                                            int layer, int position) {
  if constexpr (kRecords<S>)
    s.track.enter(SpanKind::kExchange, phase, layer, position - p.position);
}

// Thread 0 keeps in Shared::expected how many arrivals complete all phases so far. The count wraps
// and is compared by difference; in shared memory it costs the other threads no register.
struct GridExchange {
  const LaunchParams& p;

  // Warp 0 calls this after its stores of the phase's results; a block barrier must stand between
  // other warps' results and this call. The release is cumulative: it covers what the other lanes
  // wrote before the warp barrier.
  template <typename S>
  __device__ __forceinline__ void warp_arrive(Shared<S>& s) const {
    __syncwarp();
    if (threadIdx.x == 0) {
      record(s, SpanKind::kHandOff);
      s.expected += gridDim.x;
      before_arrival<S>(p, s.expected);
      if (static_cast<int>(blockIdx.x) != p.stall_block) ptx::add_release(p.arrivals, 1);
      record_next(s, SpanKind::kWeights);  // the next phase requests its weights before it waits
    }
  }

  // All threads of the block call this. False when the launch must end: some block's wait expired.
  template <typename S>
  __device__ __forceinline__ bool block_wait(Shared<S>& s, Phase phase, int layer,
                                             int position) const {
    if (threadIdx.x == 0) {
      record_wait(p, s, phase, layer, position);
      s.wait_ok = poll<S>(p, s.expected, phase, layer, position);
      record(s, SpanKind::kBody);
    }
    __syncthreads();
    return s.wait_ok != 0;
  }

  // All threads of the block call this when they leave the launch early. A failed wait is recorded
  // here: during the wait the next phase's weights occupy the registers (CUDA 12.8 would spill).
  template <typename S>
  __device__ __forceinline__ void block_leave(const Shared<S>& s, int position) const {
    if (threadIdx.x != 0 || s.wait_ok != 0 || blockIdx.x >= kMostRecords) return;
    BlockRecord* mine = p.records->blocks + blockIdx.x;
    ptx::store_system(&mine->position, position);
    ptx::store_system(&mine->expected, static_cast<int>(s.expected));
    __threadfence_system();
    ptx::store_system(&mine->gave_up, 1);
  }

 private:
  // These functions are static, because handing over `this` would need a stack frame, which is local
  // memory on the critical path.
  template <typename S>
  static __device__ __forceinline__ int poll(const LaunchParams& p, unsigned expected, Phase phase,
                                             int layer, int position) {
    if (reached<S>(ptx::load_acquire(p.arrivals), expected)) return 1;
    return poll_bounded<S>(p, expected, phase, layer, position);
  }

  // Reads timer and abort word only at every 256th poll: a poll is an L2 round trip, and reading
  // the timer each time would double its duration.
  template <typename S>
  static __device__ __forceinline__ int poll_bounded(const LaunchParams& p, unsigned expected,
                                                     Phase phase, int layer, int position) {
    const unsigned long long start = ptx::global_ns();
    for (;;) {
      for (int i = 0; i < 256; ++i) {
        if (reached<S>(ptx::load_acquire(p.arrivals), expected)) return 1;
      }
      if (ptx::load_relaxed(p.abort) != 0) return 0;
      if (ptx::global_ns() - start > p.spin_limit_ns) {
        raise(p, expected, phase, layer, position);
        return 0;
      }
    }
  }

  // The first block whose wait expires writes the status. All blocks then return in order instead
  // of trapping, so the CUDA context stays usable.
  static __device__ __forceinline__ void raise(const LaunchParams& p, unsigned expected,
                                               Phase phase, int layer, int position) {
    if (atomicCAS(p.abort, 0u, 1u) != 0) return;
    KernelStatus* status = p.status;
    ptx::store_system(&status->block, static_cast<int>(blockIdx.x));
    ptx::store_system(&status->phase, static_cast<int>(phase));
    ptx::store_system(&status->layer, layer);
    ptx::store_system(&status->position, position);
    ptx::store_system(&status->expected, static_cast<int>(expected));
    ptx::store_system(&status->seen, static_cast<int>(ptx::load_relaxed(p.arrivals)));
    __threadfence_system();
    ptx::store_system(&status->raised, 1);
  }
};

}  // namespace mkbench::plain
