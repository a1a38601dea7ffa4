// Converts the attention result to the O-projection's input, in held and in streamed shapes.
#pragma once

#include "kernels/ring/phases/attention.cuh"

namespace mkbench::ring {

// The attention result as B operands of one mma_k16: head 0's 8 dimensions are k 0-7, head 1's are
// k 8-15; even columns carry the high plane, odd columns the low plane.
struct OutInput {
  unsigned b0, b1;
};

__device__ __forceinline__ OutInput out_input(const Lane& me, const Attended& a) {
  const float mine = __fdividef(1.0f, a.denominator), other = shuffle_xor(mine, 1);
  const float scale0 = (me.j & 1) != 0 ? other : mine, scale1 = (me.j & 1) != 0 ? mine : other;
  const float x0 = a.numerators[0] * scale0, x1 = a.numerators[1] * scale0;
  const float y0 = a.numerators[2] * scale1, y1 = a.numerators[3] * scale1;
  const unsigned high0 = ptx::bf16_pair(x0, x1), high1 = ptx::bf16_pair(y0, y1);
  if ((me.row & 1) == 0) return {high0, high1};
  return {bf16_rest(x0, x1, high0), bf16_rest(y0, y1, high1)};
}

// The B operands from partials of the group's blocks: `a` is the sum of two of them. This sums `a`
// over the 8 values of Lane::row; each lane ends with one of the four numerators.
__device__ __forceinline__ OutInput combined_out_input(const Lane& me, const Partial& a) {
  const bool second_head = (me.row & 4) != 0, second = (me.row & 2) != 0;
  float z = a.denominator;
  const float* n = a.numerators;
  float keep0 = second_head ? n[2] : n[0], keep1 = second_head ? n[3] : n[1];
  keep0 += shuffle_xor(second_head ? n[0] : n[2], 16);
  keep1 += shuffle_xor(second_head ? n[1] : n[3], 16);
  z += shuffle_xor(z, 16);
  float x = second ? keep1 : keep0;
  x += shuffle_xor(second ? keep0 : keep1, 8);
  z += shuffle_xor(z, 8);
  x += shuffle_xor(x, 4);
  z += shuffle_xor(z, 4);
  const float mine = __fdividef(1.0f, z), other = shuffle_xor(mine, 1);
  x *= second_head == ((me.j & 1) != 0) ? mine : other;
  const unsigned high = ptx::bf16_pair(x, 0.0f);
  const unsigned plane = (me.row & 1) == 0 ? high : ptx::bf16_pair(x - low_bf16(high), 0.0f);
  const unsigned neighbour = __shfl_xor_sync(~0u, plane, 8);
  const unsigned pair =
      second ? __byte_perm(neighbour, plane, 0x5410) : __byte_perm(plane, neighbour, 0x5410);
  const unsigned other_head = __shfl_xor_sync(~0u, pair, 16);
  return second_head ? OutInput{other_head, pair} : OutInput{pair, other_head};
}

}  // namespace mkbench::ring
