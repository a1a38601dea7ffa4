// Attention of one kv head and its two query heads over the block's share of the context.
//   y_h(t) = (q_h . k_t) s_h             score of position t in log2 units
//   p_h(t) = 2^(y_h(t) - R_h)
//   numerators sum_t p_h(t) v_t, denominators sum_t p_h(t)
// Reads   qkv words of the group's 16 blocks; K and V tiles from the ring; qk_norms; rope;
//         Shared::statistics: s_h, R_h and the current position's score (roles/statistics.cuh).
// Writes  Shared::raw, rotated; returns numerators and denominators.
// Warp w prepares the 32 rows of q, k or v that the group's block w computed; attention_turns.cuh
// says which warp works on which part of a tile. phase_attention_out() in o_proj.cuh calls attend()
// and multiplies its result. Another role writes the new row of the KV cache (roles/kv_write.cuh).
#pragma once

#include "kernels/ring/phases/attention_slow.cuh"

namespace mkbench::ring {

// Norm weight and angle of a lane's dimension, loaded before q, k and v arrive. The weight stays
// unconverted, because a conversion would wait for the load. V has no norm or RoPE: its weight is 1
// and its angle 0.
struct HeadInputs {
  unsigned weight_bits;  // QK-norm, bf16
  float2 angle;          // cosine, sine
};

// The group's q, k and v of this layer: a warp fetches one block's 32 rows, one a lane (dimension d
// in lanes 0-15, d + 64 in lanes 16-31), applies norm weight and RoPE and shares them. The norm's
// scale 1 / rms is applied to the scores.
template <RingAblation kAblation>
__device__ __forceinline__ void warp_head_vectors(Consumer<kAblation>& c, const Site& site,
                                                  int layer, const HeadInputs& inputs) {
  const Lane me = consumer_lane();
  const float x = await_word<kAblation>(
      c.p, site, c.p.qkv + (c.block.group() * kMembers + me.warp) * kQkvRows + me.lane, c.epoch);
  c.mark(SpanKind::kBody);
  const int at =
      (me.warp >> 2) * kHeadStride + 16 * (me.warp & 3) + (me.lane & 15) + 64 * (me.lane >> 4);
  const auto store = [at](SplitPlane& to, float value) {
    const unsigned high = ptx::bf16_pair(value, 0.0f);
    to.high[at] = static_cast<unsigned short>(high);
    to.low[at] = static_cast<unsigned short>(ptx::bf16_pair(value - low_bf16(high), 0.0f));
  };
  store(c.s.raw[layer & 1], x);
  const float mine = x * low_bf16(inputs.weight_bits), other = shuffle_xor(mine, 16);
  store(c.s.rotated[layer & 1],
        fmaf(other, me.lane < 16 ? -inputs.angle.y : inputs.angle.y, mine * inputs.angle.x));
  ptx::named_arrive<kOneMore>(kHeadVectors);
  ptx::named_sync<kConsumerThreads>(kConsumers);
}

// All turns over the block's share of the context, then the current position. K of the first turn
// is in registers already.
template <bool kSplit, RingAblation kAblation>
__device__ __forceinline__ Attended attend(Attention<kSplit, kAblation>& a, int layer) {
  constexpr int kTiles = Attention<kSplit, kAblation>::kTiles;
  Consumer<kAblation>& c = a.c;
  const Statistics& st = c.s.statistics;
  bool slow = false;
  Attended r{};
  if (a.tiles == 0) {
    c.mark(SpanKind::kHandOff);
    ptx::named_sync<kOneMore>(kStatistics);
    c.mark(SpanKind::kBody);
    slow = computes_tokens(kAblation) && st.slow != 0;
  } else {
    a.clear();
#pragma unroll 1
    for (int first = 0;;) {
      float s[4] = {};
      {  // a scope of its own: a Lane that lives across the wait below costs four registers
        const Lane me = consumer_lane();
        if (a.has_rows(me, first)) a.scores(me, layer, s);
      }
      if (first == 0) {
        c.mark(SpanKind::kHandOff);
        ptx::named_sync<kOneMore>(kStatistics);
        c.mark(SpanKind::kBody);
        slow = computes_tokens(kAblation) && st.slow != 0;
      }
      const Lane me = consumer_lane();
      float2 reference = make_float2(st.reference0, st.reference1);
      if (slow) reference = raise_reference(a, me, first, s);
      if (a.has_rows(me, first)) a.exponentiate(me, first, s, reference.x, reference.y);
      const int next = first + kTiles;
      if (next >= a.tiles && me.j == 0 && me.row < 2) c.s.denominators[me.row][me.warp] = a.sum;
      ptx::named_sync<kConsumerThreads>(kConsumers);
      a.multiply_v(me, first, a.turn_of(first));
      if (next >= a.tiles) break;
      first = next;
      a.load_k(first);
    }
    a.collect(r);
    r.denominator = a.collect_denominator(consumer_lane());
  }
  const Lane me = consumer_lane();
  float2 current;
  if (slow) {
    current = settle_reference(a, me, r);
  } else {
    current = make_float2(ptx::exp2_approx(st.current0), ptx::exp2_approx(st.current1));
  }
  if (a.adds_current()) a.add_current(me, layer, current.x, current.y, r);
  return r;
}

}  // namespace mkbench::ring
