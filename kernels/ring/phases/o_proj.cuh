// Attention and O: h += W_o attention, over the group's two heads; the groups' contributions meet
// in attention_out.
// Reads  what attention.cuh reads; in split mode the partials of the group's 16 blocks.
// Writes partials (split mode); Shared::partials [64 rows][16 warps], which the publisher adds to
//        attention_out.
// A warp takes all 64 rows x the 8 dimensions of both heads that its part of V gave it.
#pragma once

#include "kernels/ring/phases/attention.cuh"
#include "kernels/ring/phases/attention_slow.cuh"

namespace mkbench::ring {

// The attention result as B operands: head 0's dimensions are k 0-7, head 1's k 8-15; even columns
// take the high plane, odd ones the low plane.
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

// The same from partials that still differ by row (= source block): their sum over the 8 rows, each
// lane ending with one of the four numerators.
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

template <RingAblation kAblation>
__device__ __forceinline__ void multiply_out(Consumer<kAblation>& c, const Lane& me,
                                             const uint4 (&w)[2 * kOutSlots], const OutInput& x) {
  float d[4][4];
#pragma unroll
  for (int m = 0; m < 4; ++m) ptx::mma_k16_first(d[m], w[m], x.b0, x.b1);
  leave_out_rows(c, me, d);
}

// All turns over the block's rows; K of the first is in registers.
template <bool kSplit, RingAblation kAblation>
__device__ __forceinline__ Attended attend(Attention<kSplit, kAblation>& a, int layer) {
  constexpr int kTiles = Attention<kSplit, kAblation>::kTiles;
  Consumer<kAblation>& c = a.c;
  const Statistics& st = c.s.statistics;
  bool slow = false;
  Attended r{};
  if (a.tiles == 0) {
    ptx::named_sync<kOneMore>(kStatistics);
    slow = kAblation == RingAblation::kNone && st.slow != 0;
  } else {
    a.clear();
#pragma unroll 1
    for (int first = 0;;) {
      float s[4] = {};
      {  // asked anew after the waits: four registers less across them
        const Lane me = consumer_lane();
        if (a.has_rows(me, first)) a.scores(me, layer, s);
      }
      if (first == 0) {
        ptx::named_sync<kOneMore>(kStatistics);
        slow = kAblation == RingAblation::kNone && st.slow != 0;
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

template <bool kSplit, RingAblation kAblation>
__device__ __forceinline__ void phase_attention_out(Consumer<kAblation>& c, int layer) {
  Attention<kSplit, kAblation> a(c, layer);
  HeadInputs inputs{0x3f80u, make_float2(1.0f, 0.0f)};
  {
    const Lane me = consumer_lane();
    const int d = 16 * (me.warp & 3) + (me.lane & 15);
    if (me.warp < 12) {
      inputs.weight_bits =
          __ldg(c.p.qk_norms + (layer * 2 + (me.warp >> 3)) * kHeadDim + d + 64 * (me.lane >> 4));
      inputs.angle = __ldg(reinterpret_cast<const float2*>(c.p.rope) +
                           static_cast<size_t>(a.site.position) * (kHeadDim / 2) + d);
    }
  }
  ptx::named_sync<kOneMore>(kPartialsRead);
  if (!kSplit) c.ring.template await_slots<kOutSlots>(consumer_lane());
  uint4 w[2 * kOutSlots];
  if (!kSplit) c.ring.fetch(consumer_lane(), w);
  // Without rows too: arrays that a path leaves undefined would be carried from layer to layer, in
  // 64 registers.
  a.load_k(0);
  warp_head_vectors(c, a.site, layer, inputs);
  const Attended r = attend(a, layer);
  const Lane me = consumer_lane();
  if (!kSplit) {
    multiply_out(c, me, w, out_input(me, r));
    return;
  }
  // [reader warp][source member][j], 16 bytes each: this warp's readers want the same dimensions.
  unsigned* words = c.p.partials + (c.block.group() * kConsumerWarps + me.warp) * kMembers * 16;
  if (me.row == 0) {
    publish_partial(
        words + c.block.member() * 16 + 4 * me.j,
        {{r.numerators[0], r.numerators[1], r.numerators[2], r.numerators[3]}, r.denominator},
        c.epoch);
  }
  c.ring.template await_slots<kOutSlots>(me);
  c.ring.fetch(me, w);
  const Partial sum = await_partials<kAblation>(c.p, a.site, words + 4 * me.lane,
                                                words + 128 + 4 * me.lane, c.epoch);
  multiply_out(c, me, w, combined_out_input(me, sum));
}

}  // namespace mkbench::ring
