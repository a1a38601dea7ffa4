// Attention of one kv head and its two or four query heads over the block's share of the context.
//   y_h(t) = (q_h . k_t) s_h             score of position t in log2 units
//   p_h(t) = 2^(y_h(t) - R_h)
//   numerators sum_t p_h(t) v_t, denominators sum_t p_h(t)
// Reads   qkv words of the group's 16 blocks; K and V tiles from the ring; qk_norms; rope;
//         Shared::statistics: s_h, R_h and the current position's score (roles/statistics.cuh).
// Writes  Shared::raw, rotated; returns numerators and denominators.
// Warp w prepares the rows of q, k or v that the group's block w computed; which warp works on which
// part of a tile: attention_turns.cuh. phase_attention_out() (held/o_proj.cuh) and stream_attention_out()
// (streamed/attention.cuh) call attend(). The statistics warp writes the new KV row (roles/kv_write.cuh).
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
// in lanes 0-15, d + 64 in lanes 16-31), applies norm weight and RoPE and stores them in shared
// memory. The norm's scale 1 / rms is applied to the scores.
template <typename L, RingAblation kAblation>
__device__ __forceinline__ void warp_head_vectors(Consumer<L, kAblation>& c, const Site& site,
                                                  int layer, const HeadInputs& inputs) {
  const Lane me = consumer_lane();
  const float x = await_word<kAblation>(
      c.p, site, c.p.qkv + (c.block.group() * kMembers + me.warp) * L::kQkvRows + me.lane, c.epoch);
  c.mark(SpanKind::kBody);
  const int at =
      (me.warp >> 2) * kHeadStride + 16 * (me.warp & 3) + (me.lane & 15) + 64 * (me.lane >> 4);
  const auto store = [at](SplitPlane<L>& to, float value) {
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

// Norm weights and angle of a lane in a streamed shape, where a lane prepares dimensions d and d + 64
// of one vector.
struct PairInputs {
  unsigned weight_bits, far_weight_bits;  // of d and d + 64
  float2 angle;
};

struct PairPlace {
  int vector, d;
};
template <typename L>
__device__ __forceinline__ PairPlace pair_place(const Lane& me, int pair) {
  const typename L::QkvRow row = L::qkv_row(me.warp, 16 * (pair >> 3) + (pair & 7));
  return {row.vector, row.d};
}
template <typename L>
__device__ __forceinline__ int pair_of(const Lane& me) {
  return min(me.lane, L::kQkvRows / 2 - 1);  // lanes without a pair repeat the last one
}

template <typename L>
__device__ __forceinline__ PairInputs pair_inputs(const LaunchParams& p, const Lane& me, int layer,
                                                  int position) {
  const PairPlace at = pair_place<L>(me, pair_of<L>(me));
  PairInputs inputs{0x3f80u, 0x3f80u, make_float2(1.0f, 0.0f)};
  if (at.vector == kValue<L>) return inputs;
  const unsigned short* weights =
      p.qk_norms + (layer * 2 + (at.vector == kKey<L> ? 1 : 0)) * kHeadDim + at.d;
  inputs.weight_bits = __ldg(weights);
  inputs.far_weight_bits = __ldg(weights + kHeadDim / 2);
  inputs.angle = __ldg(reinterpret_cast<const float2*>(p.rope) +
                       static_cast<size_t>(position) * (kHeadDim / 2) + at.d);
  return inputs;
}

template <typename L>
__device__ __forceinline__ void store_split(SplitPlane<L>& to, int at, float value) {
  const unsigned high = ptx::bf16_pair(value, 0.0f);
  to.high[at] = static_cast<unsigned short>(high);
  to.low[at] = static_cast<unsigned short>(ptx::bf16_pair(value - low_bf16(high), 0.0f));
}

template <typename L, RingAblation kAblation>
__device__ __forceinline__ void warp_head_pairs(Consumer<L, kAblation>& c, const Site& site,
                                                int layer, const PairInputs& inputs) {
  const Lane me = consumer_lane();
  const int pair = pair_of<L>(me);
  const float2 x = await_words<kAblation>(
      c.p, site, c.p.qkv + (c.block.group() * kMembers + me.warp) * L::kQkvRows + 2 * pair,
      c.epoch);
  const PairPlace place = pair_place<L>(me, pair);
  if (me.lane < L::kQkvRows / 2) {
    const int at = place.vector * kHeadStride + place.d;
    store_split(c.s.raw[layer & 1], at, x.x);
    store_split(c.s.raw[layer & 1], at + kHeadDim / 2, x.y);
    const float near = x.x * low_bf16(inputs.weight_bits);
    const float far = x.y * low_bf16(inputs.far_weight_bits);
    store_split(c.s.rotated[layer & 1], at, fmaf(far, -inputs.angle.y, near * inputs.angle.x));
    store_split(c.s.rotated[layer & 1], at + kHeadDim / 2,
                fmaf(near, inputs.angle.y, far * inputs.angle.x));
  }
  __syncwarp();
  ptx::named_arrive<kOneMore>(kHeadVectors);
  ptx::named_sync<kConsumerThreads>(kConsumers);
}

// All turns over the block's share of the context, then the current position. K of the first turn
// is in registers already.
template <typename L, bool kSplit, RingAblation kAblation>
__device__ __forceinline__ Attended attend(Attention<L, kSplit, kAblation>& a, int layer) {
  constexpr int kTiles = Attention<L, kSplit, kAblation>::kTiles;
  Consumer<L, kAblation>& c = a.c;
  const auto statistics = [&](int pair) -> const Statistics& { return c.s.statistics[pair]; };
  bool slow = false;
  Attended r{};
  if (a.tiles == 0) {
    c.mark(SpanKind::kHandOff);
    ptx::named_sync<kOneMore>(kStatistics);
    c.mark(SpanKind::kBody);
    slow = computes_tokens(kAblation) && statistics(0).slow != 0;
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
        slow = computes_tokens(kAblation) && statistics(0).slow != 0;
      }
      const Lane me = consumer_lane();
      const Statistics& st = statistics(a.score_pair(me));
      float2 reference = make_float2(st.reference0, st.reference1);
      if (slow) reference = raise_reference(a, me, first, s);
      if (a.has_rows(me, first)) a.exponentiate(me, first, s, reference.x, reference.y);
      const int next = first + kTiles;
      if (next >= a.tiles && me.j == 0 && me.row < L::kHeads)
        c.s.denominators[me.row][me.warp] = a.sum;
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
    const Statistics& st = statistics(a.value_pair(me));
    current = make_float2(ptx::exp2_approx(st.current0), ptx::exp2_approx(st.current1));
  }
  if (a.adds_current()) a.add_current(me, layer, current.x, current.y, r);
  return r;
}

}  // namespace mkbench::ring
