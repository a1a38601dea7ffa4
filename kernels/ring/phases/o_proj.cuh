// Attention and O-projection in one function, phase_attention_out(): attend() of attention.cuh,
// then
//   h += W_o attention             over the 256 columns of the group's two heads
// Without a split, W_o is fetched before attention waits for q, k and v; with a split, while the
// partial attention results travel between the group's blocks.
// Reads   what attention.cuh reads; with a split the partials words (groups, warps, members, 4) of
//         the group's 16 blocks; W_o's 2 slots (64 rows, 256 columns) from the ring.
// Writes  partials words (split only); Shared::partials [64 rows][16 warps], which the publisher
//         sums and adds to attention_out (hidden), where the 8 groups' contributions meet.
// A warp takes all 64 rows x the 8 dimensions of both heads that it summed over V.
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

// The B operands from partials of the group's blocks, two of which a lane has added already. Summed
// here over the 8 values of Lane::row; each lane ends with one of the four numerators.
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
  ptx::named_sync<kOneMore>(kPartialsRead);
  if (!kSplit) c.ring.template await_slots<L::kOutSlots>(consumer_lane());
  uint4 w[2 * L::kOutSlots];
  if (!kSplit) c.ring.fetch(consumer_lane(), w);
  // Called even for a share without rows, because it also zeroes a.k: an array that one path leaves
  // undefined would be carried from layer to layer, in 64 registers.
  a.load_k(0);
  warp_head_vectors(c, a.site, layer, inputs);
  const Attended r = attend(a, layer);
  const Lane me = consumer_lane();
  if (!kSplit) {
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
  c.ring.template await_slots<L::kOutSlots>(me);
  c.ring.fetch(me, w);
  const Partial sum = await_partials<kAblation>(c.p, a.site, words + 4 * me.lane,
                                                words + 128 + 4 * me.lane, c.epoch);
  multiply_out(c, me, w, combined_out_input(me, sum));
}

}  // namespace mkbench::ring
