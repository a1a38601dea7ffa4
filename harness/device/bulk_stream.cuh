// One thread streams memory by bulk copies into a ring in shared memory that is never read: it
// measures the bandwidth of bulk copies.
#pragma once

#include "harness/device/bulk_copy.cuh"
#include "harness/device/read_pattern.h"
#include "harness/device/step_walk.h"

#if __CUDA_ARCH__ >= 900

namespace mkbench {

// Streams all chunks of `walk`, which are plan.copy_bytes long. Called by one thread; `ring` holds
// plan.ring_bytes(), `full` plan.stages barriers. False when a copy never arrives.
__device__ __forceinline__ bool stream_bulk(const char* buffer, StepWalk walk, BulkPlan plan,
                                            char* ring, uint64_t* full) {
  for (uint32_t s = 0; s < plan.stages; ++s) barrier_init(&full[s], 1);
  barrier_init_fence();
  uint32_t in_flight = 0, issue_slot = 0, wait_slot = 0, parity = 0;
  long long next_issue = clock64();  // by a schedule, so that a late copy delays no later one
  for (;;) {
    // Keeps `stages` copies in flight, evenly paced: an even stream is read fastest.
    while (in_flight < plan.stages && !walk.done()) {
      if (clock64() - next_issue > plan.gap_cycles) next_issue = clock64();
      while (clock64() < next_issue) {
      }
      next_issue += plan.gap_cycles;
      barrier_expect_bytes(&full[issue_slot], plan.copy_bytes);
      bulk_copy_to_shared(ring + issue_slot * plan.copy_bytes,
                          buffer + uint64_t{walk.chunk()} * plan.copy_bytes, plan.copy_bytes,
                          &full[issue_slot]);
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
