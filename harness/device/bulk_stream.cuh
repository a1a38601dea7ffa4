// One thread streams memory by bulk copies into a ring in shared memory that is never read: it
// measures the bandwidth of bulk copies.
#pragma once

#include "harness/device/bulk_copy.cuh"
#include "harness/device/read_pattern.h"
#include "harness/device/step_walk.h"

#if __CUDA_ARCH__ >= 900

namespace mkbench {

// Paces one thread's copies by a schedule: a copy that is up to one gap late does not delay the
// next. The gap is a time and not a number of cycles: memory has its own clock, and the SM clock
// varies by some per cent with the power drawn. %globaltimer is slow to read and moves in steps, so
// the wait polls clock64(), whose rate is measured again and again.
class CopySchedule {
 public:
  __device__ explicit CopySchedule(uint32_t gap_ps)
      : gap_ps_(gap_ps), next_(clock64()), from_cycles_(next_), from_ns_(global_ns()) {}

  // Waits until the next copy is due. The first kShortestWindow copies are not held back.
  __device__ __forceinline__ void wait() {
    if (gap_ps_ == 0) return;
    long long now = clock64();
    if (--left_ == 0) measure(now);
    if (now - next_ > gap_cycles_) next_ = now;
    while (now < next_) now = clock64();
    next_ += gap_cycles_;
  }

 private:
  static constexpr int kShortestWindow = 16, kLongestWindow = 1024;  // copies
  // Above every SM's clock: a higher rate means that %globaltimer has not made its next step yet.
  static constexpr float kMostGhz = 8;

  __device__ void measure(long long now) {
    const uint64_t now_ns = global_ns();
    window_ = min(2 * window_, kLongestWindow);
    left_ = window_;
    const float cycles = static_cast<float>(now - from_cycles_);
    const float ns = static_cast<float>(now_ns - from_ns_);
    if (cycles > kMostGhz * ns) return;  // the next window then includes this one
    gap_cycles_ = __float2int_rn(1e-3f * static_cast<float>(gap_ps_) * cycles / ns);
    from_cycles_ = now;
    from_ns_ = now_ns;
  }

  const uint32_t gap_ps_;
  int window_ = kShortestWindow, left_ = kShortestWindow;
  int gap_cycles_ = 0;  // 0 until the first window has been measured
  long long next_, from_cycles_;
  uint64_t from_ns_;
};

// Streams all chunks of `walk`, which are plan.copy_bytes long. Called by one thread; `ring` holds
// plan.ring_bytes(), `full` plan.stages barriers. kKeeps: L2 is asked to keep the first `kept` bytes
// of each step. False when a copy never arrives.
template <bool kKeeps>
__device__ __forceinline__ bool stream_bulk(const char* buffer, StepWalk walk, BulkPlan plan,
                                            uint64_t kept, char* ring, uint64_t* full) {
  [[maybe_unused]] const KeepPolicies policies = kKeeps ? keep_policies() : KeepPolicies{};
  for (uint32_t s = 0; s < plan.stages; ++s) barrier_init(&full[s], 1);
  barrier_init_fence();
  uint32_t in_flight = 0, issue_slot = 0, wait_slot = 0, parity = 0;
  CopySchedule schedule(plan.gap_ps);
  for (;;) {
    // Keeps `stages` copies in flight, evenly paced: an even stream is read fastest.
    while (in_flight < plan.stages && !walk.done()) {
      schedule.wait();
      barrier_expect_bytes(&full[issue_slot], plan.copy_bytes);
      const uint64_t at = uint64_t{walk.chunk()} * plan.copy_bytes;
      char* slot = ring + issue_slot * plan.copy_bytes;
      if constexpr (kKeeps) {
        bulk_copy_to_shared(slot, buffer + at, plan.copy_bytes, &full[issue_slot],
                            at < kept ? policies.keep : policies.pass);
      } else {
        bulk_copy_to_shared(slot, buffer + at, plan.copy_bytes, &full[issue_slot]);
      }
      ++in_flight;
      issue_slot = issue_slot + 1 == plan.stages ? 0 : issue_slot + 1;
      walk.next();
    }
    if (in_flight == 0) return true;
    if (!barrier_wait_bounded(&full[wait_slot], parity)) return false;
    --in_flight;
    if (++wait_slot == plan.stages) {
      wait_slot = 0;
      parity ^= 1;
    }
  }
}

}  // namespace mkbench

#endif
