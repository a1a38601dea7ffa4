// Token selection: the id of the next step, from the inputs given or from the LM head's best rows.
// Reads  best (gridDim.x): {ordered logit, inverted row} of each block's rows.
// Writes outputs[step - 1 - first_output], by block 0. Every block computes the same id.
#pragma once

#include "kernels/best_key.cuh"
#include "kernels/plain/block.cuh"

namespace mkbench::plain {

// A key with its row's bits flipped where the highest of equal rows is to win. Its own inverse.
template <typename S>
__device__ __forceinline__ unsigned long long ranked(unsigned long long key) {
  return planted<S>(PlantedFault::kArgmaxHighest) && key != kNanKey ? key ^ 0xffffffffull : key;
}

// The id that step `step` embeds; -1 when the step before had a NaN logit. Call after the wait for
// the LM head.
template <typename SharedMemory>
__device__ __forceinline__ int block_select_token(Thread me, const LaunchParams& p, SharedMemory& s,
                                                  int step) {
  if (me.warp == 0) {
    int token = -1;
    if (step > p.first_output) {
      unsigned long long key = 0;
      for (int b = me.lane; b < static_cast<int>(gridDim.x); b += 32) {
        key = max_key(key, ptx::load_l2(p.best + b));
      }
      key = ranked<typename SharedMemory::Shape>(warp_max_key(key));
      if (key != kNanKey) token = static_cast<int>(~static_cast<unsigned>(key));
      if (blockIdx.x == 0 && me.lane == 0) p.outputs[step - 1 - p.first_output] = token;
    }
    if (me.lane == 0) s.token = step < p.input_count ? __ldg(p.inputs + step) : token;
  }
  __syncthreads();
  return s.token;
}

}  // namespace mkbench::plain
