// QKV projection; in layer 0 it begins with the embedding.
//   q, k, v = W_qkv RMSNorm(h), h = embed[token] in layer 0
// Reads   mlp_out (hidden) of the layer before, or embed (vocab, hidden); row 2 * layer of norms
//         (2 * layers + 1, hidden); W_qkv's 4 slots from the ring.
// Writes  Shared::partials [32 rows][16 warps] and Shared::squares; the publisher sums them, scales
//         by 1 / rms and publishes the qkv words (kBlocks, 32).
// A block has 32 rows of one vector of its group (q of head 0 or 1, k, or v): dimensions d and
// d + 64, which RoPE pairs, for 16 neighbouring d. A warp takes all 32 rows x 64 columns.
#pragma once

#include "kernels/ring/consumer.cuh"

namespace mkbench::ring {

template <typename L, RingAblation kAblation>
__device__ __forceinline__ void embed_token(Consumer<L, kAblation>& c, const Lane& me, float2& h) {
  const int t = me.warp * 32 + me.lane;
  const unsigned pair = load_pair(c.p.embed + static_cast<size_t>(c.s.token) * L::kHidden + 2 * t);
  h = make_float2(low_bf16(pair), high_bf16(pair));
  c.s.residual[t] = h;
}

// Returns false when the launch has ended.
template <typename L, RingAblation kAblation>
__device__ __forceinline__ bool phase_qkv(Consumer<L, kAblation>& c, int layer) {
  const Lane me = consumer_lane();
  const Site site{Phase::kQkv, layer, c.position()};
  const int t = me.warp * 32 + me.lane;
  uint4 w[2 * L::kQkvSlots];
  // First wait until the publisher has read the partial sums and published: 16 warps that poll for
  // slots or load from them would delay it (15 us a token at 512 positions, H200).
  c.enter(SpanKind::kHandOff, Phase::kQkv, layer);
  if (layer > 0) ptx::named_sync<kOneMore>(kPartialsRead);
  c.mark(SpanKind::kWeights);
  c.ring.template await_slots<L::kQkvSlots>(me);
  const unsigned norm = load_pair(c.p.norms + static_cast<size_t>(2 * layer) * L::kHidden + 2 * t);
  c.ring.fetch(me, w);
  c.mark(SpanKind::kExchange);
  float2 h;
  if (layer == 0) {
    if (c.step > 0) {
      ptx::named_sync<kOneMore>(kTokenDone);
      if (c.s.token < 0) return false;
    }
    embed_token(c, me, h);
  } else {
    h = await_residual<L, kAblation>(c.p, site, me, c.block.index, c.s, c.p.mlp_out, 1);
    if (c.p.hidden != nullptr && c.block.index == 0) {
      reinterpret_cast<float2*>(c.p.hidden)[(layer - 1) * (L::kHidden / 2) + t] = h;
    }
  }
  c.mark(SpanKind::kBody);
  NormInput x = warp_norm_input(me, c.s, h, norm);
  float d[2][2][4] = {};
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    const unsigned b0 = first_operand(x.b, k), b1 = second_operand(x.b, k);
    ptx::mma_k16(d[0][k & 1], w[2 * k], b0, b1);
    ptx::mma_k16(d[1][k & 1], w[2 * k + 1], b0, b1);
    x.squares += shuffle_xor(x.squares, 8 >> k);
  }
  const int turn = c.even_turn();
  if (me.lane == 0) c.s.squares[turn][me.warp] = x.squares;
  auto both = [&](int tile, int i) {  // sum of both planes' columns and both accumulators
    return (d[tile][0][i] + d[tile][0][i + 1]) + (d[tile][1][i] + d[tile][1][i + 1]);
  };
  c.s.partials[turn][8 * me.j + me.row][me.warp] =
      select4(me.j, both(0, 0), both(0, 2), both(1, 0), both(1, 2));
  ptx::named_arrive<kOneMore>(kPartials + turn);
  return true;
}

}  // namespace mkbench::ring
