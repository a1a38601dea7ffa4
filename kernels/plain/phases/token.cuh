// Token selection: id = inputs[step] where given, else argmax of the last step's logits (the lowest
//        row among equal logits).
// Reads  inputs (input_count); best (gridDim.x): {ordered logit, inverted row} of each block's
//        rows.
// Writes outputs[step - 1 - first_output].
// Every block computes the same id; block 0 writes it.
#pragma once

#include "kernels/best_key.cuh"
#include "kernels/plain/block.cuh"

namespace mkbench::plain {

// The key of an LM head row, and the row of a key: the largest key wins.
template <typename S>
__device__ __forceinline__ unsigned long long key_of(float logit, int row) {
  return best_key(logit, row);
}
template <typename S>
__device__ __forceinline__ int row_of(unsigned long long key) {
  return static_cast<int>(~static_cast<unsigned>(key));
}

// The id that step `step` embeds; -1 when the step before had a NaN logit. To be called after the
// wait for the LM head.
template <typename S>
__device__ __forceinline__ int block_select_token(Thread me, const LaunchParams& p, Shared<S>& s,
                                                  int step) {
  if (me.warp == 0) {
    int token = -1;
    if (step > p.first_output) {
      unsigned long long key = 0;
      for (int b = me.lane; b < static_cast<int>(gridDim.x); b += 32) {
        key = max_key(key, ptx::load_l2(p.best + b));
      }
      key = warp_max_key(key);
      if (key != kNanKey) token = row_of<S>(key);
      if (blockIdx.x == 0 && me.lane == 0) p.outputs[step - 1 - p.first_output] = token;
    }
    if (me.lane == 0) s.token = step < p.input_count ? __ldg(p.inputs + step) : token;
  }
  __syncthreads();
  return s.token;
}

}  // namespace mkbench::plain
