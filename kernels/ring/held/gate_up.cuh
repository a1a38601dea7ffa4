// Gate- and up-projection.
//   gate = W_gate RMSNorm(h), up = W_up RMSNorm(h)
// SwiGLU itself, silu(gate) up, is in publish_held_layer() of roles/publisher.cuh, because only the
// publisher has the sums over all warps.
// Reads   attention_out (hidden); row 2 * layer + 1 of norms (2 * layers + 1, hidden); 6 slots of
//         W_gate and W_up from the ring.
// Writes  Shared::partials [24 gate rows + 24 up rows][16 warps] and Shared::squares.
// A block has 24 SwiGLU units; a fragment holds 8 gate rows and the 8 up rows of the same units. A
// warp takes all 48 rows x 64 columns.
#pragma once

#include "kernels/ring/consumer.cuh"

namespace mkbench::ring {

template <typename L, RingAblation kAblation>
__device__ __forceinline__ void phase_gate_up(Consumer<L, kAblation>& c, int layer) {
  const Lane me = consumer_lane();
  const Site site{Phase::kGateUp, layer, c.position()};
  const int t = me.warp * 32 + me.lane;
  uint4 w[2 * L::kGateUpSlots];
  c.enter(SpanKind::kHandOff, Phase::kGateUp, layer);
  ptx::named_sync<kOneMore>(kPartialsRead);
  c.mark(SpanKind::kWeights);
  c.ring.template await_slots<L::kGateUpSlots>(me);
  const unsigned norm =
      load_pair(c.p.norms + static_cast<size_t>(2 * layer + 1) * L::kHidden + 2 * t);
  c.ring.fetch(me, w);
  c.mark(SpanKind::kExchange);
  const float2 h =
      await_residual<L, kAblation>(c.p, site, me, c.block.index, c.s, c.p.attention_out, 0);
  c.mark(SpanKind::kBody);
  NormInput x = warp_norm_input(me, c.s, h, norm);
  float d[3][4] = {};
#pragma unroll
  for (int k = 0; k < 4; ++k) {
#pragma unroll
    for (int r = 0; r < 3; ++r) {
      ptx::mma_k16(d[r], w[3 * k + r], first_operand(x.b, k), second_operand(x.b, k));
    }
    x.squares += shuffle_xor(x.squares, 8 >> k);
  }
  const int turn = c.even_turn();
  if (me.lane == 0) c.s.squares[turn][me.warp] = x.squares;
  const float gate = select4(me.j, d[0][0] + d[0][1], d[1][0] + d[1][1], d[2][0] + d[2][1], 0.0f);
  const float up = select4(me.j, d[0][2] + d[0][3], d[1][2] + d[1][3], d[2][2] + d[2][3], 0.0f);
  if (me.j < 3) {
    c.s.partials[turn][8 * me.j + me.row][me.warp] = gate;
    c.s.partials[turn][L::kUnits + 8 * me.j + me.row][me.warp] = up;
  }
  ptx::named_arrive<kOneMore>(kPartials + turn);
}

}  // namespace mkbench::ring
