// Streamed counterpart of held/o_proj.cuh: attention and O-projection. O's weights come
// after K and V in the stream, with or without a split of the context.
#pragma once

#include "kernels/ring/phases/out_input.cuh"
#include "kernels/ring/streamed/rounds.cuh"

namespace mkbench::ring {

// The sum of `kWords` partials, all polled together.
template <RingAblation kAblation, int kWords>
__device__ __forceinline__ Partial await_partial_words(const LaunchParams& p, const Site& at,
                                                       const unsigned* words, unsigned epoch) {
  uint4 w[kWords];
  warp_wait_until(p, at, epoch, [&](unsigned& seen) {
#pragma unroll
    for (int i = 0; i < kWords; ++i) w[i] = ptx::load_relaxed16(words + 128 * i);
    bool ready = true;
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
      ready = ready && word_ready(w[i].w, epoch);
      seen = w[i].w & 0xffu;
    }
    return ready || kAblation == RingAblation::kNoWaits;
  });
  Partial sum = partial_of(w[0]);
#pragma unroll
  for (int i = 1; i < kWords; ++i) {
    const Partial x = partial_of(w[i]);
#pragma unroll
    for (int n = 0; n < 4; ++n) sum.numerators[n] += x.numerators[n];
    sum.denominator += x.denominator;
  }
  return sum;
}

// Index, in units of 32 bits, of a word of attention partials among the words for one reader warp:
// [member / 2][pair of heads][member % 2][j], so that bit 1 of Lane::row is the pair that a lane reads.
template <typename L>
__device__ __forceinline__ int partial_word(int member, int pair, int j) {
  return 4 * (((member >> 1) * L::kHeadPairs + pair) * 8 + (member & 1) * 4 + j);
}

// Publishes the block's share of attention. Several lanes hold the same sums; one of them writes.
template <typename L, bool kSplit, RingAblation kAblation>
__device__ __forceinline__ void publish_share(Consumer<L, kAblation>& c, unsigned* words,
                                              const Attended& r) {
  using A = Attention<L, kSplit, kAblation>;
  const Lane me = consumer_lane();
  if ((me.row & (L::kHeadPairs == 1 ? 7 : 5)) != 0) return;
  publish_partial(
      words + partial_word<L>(c.block.member(), A::value_pair(me), me.j),
      {{r.numerators[0], r.numerators[1], r.numerators[2], r.numerators[3]}, r.denominator},
      c.epoch);
}

// Waits for the shares of all members and returns the B operands of the lane's pair of heads.
template <typename L, RingAblation kAblation>
__device__ __forceinline__ OutInput await_shares(Consumer<L, kAblation>& c, const Lane& me,
                                                 const Site& site, const unsigned* words) {
  Partial sum =
      await_partial_words<kAblation, 2 * L::kHeadPairs>(c.p, site, words + 4 * me.lane, c.epoch);
  if constexpr (L::kHeadPairs == 1) {
    return combined_out_input(me, sum);
  } else {
    // Sums over the members that bits 0 and 2 of Lane::row distinguish.
#pragma unroll
    for (int offset = 4; offset <= 16; offset *= 4) {
#pragma unroll
      for (int n = 0; n < 4; ++n) sum.numerators[n] += shuffle_xor(sum.numerators[n], offset);
      sum.denominator += shuffle_xor(sum.denominator, offset);
    }
    const float* n = sum.numerators;
    return out_input(me, {{n[0], n[1], n[2], n[3]}, sum.denominator});
  }
}

// B operands of O: k-step s multiplies the pair of heads number s.
template <typename L>
struct HeadsInput {
  OutInput of[L::kHeadPairs];
  __device__ __forceinline__ HeadsInput(const Lane& me, const OutInput& mine) {
    if (L::kHeadPairs == 1) {
      of[0] = mine;
      return;
    }
    const OutInput other{__shfl_xor_sync(~0u, mine.b0, 8), __shfl_xor_sync(~0u, mine.b1, 8)};
    const bool second = (me.row & 2) != 0;
    of[0] = second ? other : mine;
    of[L::kHeadPairs - 1] = second ? mine : other;
  }
  __device__ __forceinline__ uint2 operator()(int step) const {
    return make_uint2(of[step].b0, of[step].b1);
  }
  __device__ __forceinline__ uint2 last8(int) const { return {}; }
};

template <bool kSplit, typename L, RingAblation kAblation>
__device__ __forceinline__ void stream_attention_out(Consumer<L, kAblation>& c, int layer) {
  constexpr Rounds kRound = L::kOutRound;
  Attention<L, kSplit, kAblation> a(c, layer);
  const PairInputs inputs = pair_inputs<L>(c.p, consumer_lane(), layer, a.site.position);
  await_partials_read();
  a.load_k(0);
  warp_head_pairs(c, a.site, layer, inputs);
  const Attended r = attend(a, layer);
  uint4 w[kRound.chunk()];
  OutInput x;
  if (kSplit) {
    unsigned* words = c.p.partials + (c.block.group() * kConsumerWarps + consumer_lane().warp) *
                                         kMembers * 16 * L::kHeadPairs;
    publish_share<L, kSplit, kAblation>(c, words, r);
    const Lane me = consumer_lane();
    fetch_chunk(c, me, w);
    x = await_shares(c, me, a.site, words);
  } else {
    const Lane me = consumer_lane();
    x = out_input(me, r);
    fetch_chunk(c, me, w);
  }
  stream_rows<kRound.rounds, kRound.tiles, kRound.steps, kRound.fragments()>(
      c, w, HeadsInput<L>(consumer_lane(), x));
}

}  // namespace mkbench::ring
