// Down-projection.
//   h += W_down swiglu             over the 384 columns of the group
// Reads   swiglu words (kBlocks, 32) of the group's 16 blocks; W_down's 3 slots (64 rows, 384
//         columns) from the ring.
// Writes  Shared::partials [64 rows][16 warps], which the publisher sums and adds to mlp_out
//         (hidden), where the 8 groups' contributions meet.
// A warp takes all 64 rows x the 24 columns that one block of the group computed.
#pragma once

#include "kernels/ring/consumer.cuh"

namespace mkbench::ring {

template <typename L, RingAblation kAblation>
__device__ __forceinline__ void phase_down(Consumer<L, kAblation>& c, int layer) {
  const Lane me = consumer_lane();
  const Site site{Phase::kDown, layer, c.position()};
  uint4 w[2 * L::kDownSlots];
  c.enter(SpanKind::kHandOff, Phase::kDown, layer);
  ptx::named_sync<kOneMore>(kPartialsRead);
  c.mark(SpanKind::kWeights);
  c.ring.template await_slots<L::kDownSlots>(me);
  // Lanes 0-11 load two columns each and make their high plane; lanes 16-27 load the same columns
  // and make their low plane.
  const int pair = me.lane & 15;
  const unsigned* words =
      c.p.swiglu + (c.block.group() * kMembers + me.warp) * 32 + 2 * (pair < 12 ? pair : 0);
  c.ring.fetch(me, w);
  c.mark(SpanKind::kExchange);
  const float2 x = await_words<kAblation>(c.p, site, words, c.epoch);
  c.mark(SpanKind::kBody);
  unsigned plane = ptx::bf16_pair(x.x, x.y);
  if (me.lane >= 16) plane = bf16_rest(x.x, x.y, plane);
  const int from = (me.row & 1) * 16;
  const unsigned b0 = __shfl_sync(~0u, plane, from + 2 * me.j);
  const unsigned b1 = __shfl_sync(~0u, plane, from + 2 * me.j + 1);
  const unsigned b2 = __shfl_sync(~0u, plane, from + 8 + me.j);
  float d[4][4] = {};
#pragma unroll
  for (int m = 0; m < 4; ++m) ptx::mma_k16(d[m], w[m], b0, b1);
  ptx::mma_k8(d[0], w[4].x, w[4].y, b2);
  ptx::mma_k8(d[1], w[4].z, w[4].w, b2);
  ptx::mma_k8(d[2], w[5].x, w[5].y, b2);
  ptx::mma_k8(d[3], w[5].z, w[5].w, b2);
  hand_over_rows(c, me, d);
}

}  // namespace mkbench::ring
