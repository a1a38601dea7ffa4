// Attention and O-projection in one function, phase_attention_out(): attend() of attention.cuh,
// then
//   h += W_o attention             over the 256 columns of the group's two heads
// Without a split, W_o is fetched before attention waits for q, k and v; with a split, while the
// partial attention results travel between the group's blocks.
// Reads   what attention.cuh reads; if split, the partials words (warps, members, 4 lanes) of the
//         group's 16 blocks; W_o's 2 slots (64 rows, 256 columns) from the ring.
// Writes  partials words (split only); Shared::partials [64 rows][16 warps], which the publisher
//         sums and adds to attention_out (hidden), where the 8 groups' contributions meet.
// A warp takes all 64 rows x the 8 dimensions of both heads that it summed over V.
#pragma once

#include "kernels/ring/phases/out_input.cuh"

namespace mkbench::ring {

template <typename L, RingAblation kAblation>
__device__ __forceinline__ void multiply_out(Consumer<L, kAblation>& c, const Lane& me,
                                             const uint4 (&w)[2 * L::kOutSlots],
                                             const OutInput& x) {
  float d[4][4];
#pragma unroll
  for (int m = 0; m < 4; ++m) ptx::mma_k16_first(d[m], w[m], x.b0, x.b1);
  hand_over_rows(c, me, d);
}

template <bool kSplit, typename L, RingAblation kAblation>
__device__ __forceinline__ void phase_attention_out(Consumer<L, kAblation>& c, int layer) {
  Attention<L, kSplit, kAblation> a(c, layer);
  // Written out here, because as a function it changes the machine code around it.
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
  c.enter(SpanKind::kHandOff, Phase::kAttention, layer);
  ptx::named_sync<kOneMore>(kPartialsRead);
  c.mark(SpanKind::kWeights);
  if (!kSplit) c.ring.template await_slots<L::kOutSlots>(consumer_lane());
  uint4 w[2 * L::kOutSlots];
  if (!kSplit) c.ring.fetch(consumer_lane(), w);
  // Called even for a share without rows, because it also zeroes a.k: an array that one path leaves
  // undefined would be carried from layer to layer, in 64 registers.
  a.load_k(0);
  c.mark(SpanKind::kExchange);
  warp_head_vectors(c, a.site, layer, inputs);
  const Attended r = attend(a, layer);
  const Lane me = consumer_lane();
  if (!kSplit) {
    c.enter(SpanKind::kBody, Phase::kOProj, layer);
    multiply_out(c, me, w, out_input(me, r));
    return;
  }
  // [reader warp][source member][j], 16 bytes each: warp w of every block reads what the warps w of
  // all 16 blocks wrote, because they summed the same dimensions.
  unsigned* words = c.p.partials + (c.block.group() * kConsumerWarps + me.warp) * kMembers * 16;
  if (me.row == 0) {
    publish_partial(
        words + c.block.member() * 16 + 4 * me.j,
        {{r.numerators[0], r.numerators[1], r.numerators[2], r.numerators[3]}, r.denominator},
        c.epoch);
  }
  c.enter(SpanKind::kWeights, Phase::kOProj, layer);
  c.ring.template await_slots<L::kOutSlots>(me);
  c.ring.fetch(me, w);
  c.mark(SpanKind::kExchange);
  const Partial sum = await_partials<kAblation>(c.p, a.site, words + 4 * me.lane,
                                                words + 128 + 4 * me.lane, c.epoch);
  c.mark(SpanKind::kBody);
  multiply_out(c, me, w, combined_out_input(me, sum));
}

}  // namespace mkbench::ring
