// Attention's slow path, for layers where the bound on a score lies too far above the current
// position's score for a fixed reference R (kFastLimit in roles/statistics.cuh). The maximum so far
// takes the place of R, turn by turn; with a split, the blocks of a group exchange their maxima at
// the end. Maxima are rounded up to integers in log2 units, so that rescaling by their differences
// is exact.
// The slow path is a few pieces of attend(), which it shares with the fast path: separate code
// for it cost 15 us a token in instruction fetches (H200).
#pragma once

#include "kernels/ring/phases/attention_turns.cuh"

namespace mkbench::ring {

// A maximum below every score, for a block without rows.
inline constexpr float kNoMaximum = -1e30f;

__device__ __forceinline__ float2 warp_maximum16(float2 m) {
#pragma unroll
  for (int offset = 8; offset > 0; offset >>= 1) {
    m.x = fmaxf(m.x, shuffle_xor(m.x, offset));
    m.y = fmaxf(m.y, shuffle_xor(m.y, offset));
  }
  return m;
}

// The maxima of each pair of heads.
template <typename L>
struct PairMaxima {
  float2 of[L::kHeadPairs];
  // The maxima of one pair. Selects instead of indexing, because an array that is indexed at run time
  // would lie in local memory.
  __device__ __forceinline__ float2 at(int pair) const {
    return pair == 0 ? of[0] : of[L::kHeadPairs - 1];
  }
};

// Returns the maxima of all scores up to this turn, for both heads of score_pair(), and rescales
// the sums so far to them. All consumers call it. Shared::running[turn % 2] holds the maximum
// up to that turn.
template <typename L, bool kSplit, RingAblation kAblation>
__device__ __forceinline__ float2 raise_reference(Attention<L, kSplit, kAblation>& a,
                                                  const Lane& me, int first, const float (&s)[4]) {
  const int turn = a.turn_of(first);
  Shared<L>& shared = a.c.s;
  const Statistics& st = shared.statistics[a.score_pair(me)];
  float y[4] = {s[0] * st.scale0, s[1] * st.scale1, s[2] * st.scale0, s[3] * st.scale1};
  a.mask_scores(a.rows_position(me, first), me.row, kNoMaximum, y);
  float2 m = make_float2(kNoMaximum, kNoMaximum);
  if (a.has_rows(me, first)) m = make_float2(fmaxf(y[0], y[2]), fmaxf(y[1], y[3]));
  m.x = fmaxf(m.x, shuffle_xor(m.x, 16));
  m.y = fmaxf(m.y, shuffle_xor(m.y, 16));
#pragma unroll
  for (int offset = 8; offset >= L::kHeadPairs; offset >>= 1) {
    m.x = fmaxf(m.x, shuffle_xor(m.x, offset));
    m.y = fmaxf(m.y, shuffle_xor(m.y, offset));
  }
  // Lane 0 has pair 0; with four heads lane 1 has pair 1.
  if (me.lane < L::kHeadPairs) shared.maxima[turn][me.lane][me.warp] = m;
  PairMaxima<L> before, now;
#pragma unroll
  for (int pair = 0; pair < L::kHeadPairs; ++pair) {
    before.of[pair] =
        first == 0 ? make_float2(kNoMaximum, kNoMaximum) : shared.running[turn ^ 1][pair];
  }
  ptx::named_sync<kConsumerThreads>(kConsumers);
#pragma unroll
  for (int pair = 0; pair < L::kHeadPairs; ++pair) {
    m = warp_maximum16(shared.maxima[turn][pair][me.lane & 15]);
    now.of[pair] =
        make_float2(fmaxf(before.of[pair].x, ceilf(m.x)), fmaxf(before.of[pair].y, ceilf(m.y)));
  }
  const float2 old = before.at(a.value_pair(me)), grown = now.at(a.value_pair(me));
  const float shrink0 = exp2f(old.x - grown.x), shrink1 = exp2f(old.y - grown.y);
#pragma unroll
  for (int i = 0; i < (kSplit ? 4 : 2); ++i) {
    a.o[i][0] *= shrink0;
    a.o[i][1] *= shrink0;
    a.o[i][2] *= shrink1;
    a.o[i][3] *= shrink1;
  }
  a.sum *= (me.row & 1) != 0 ? shrink1 : shrink0;
  if (me.warp == 0 && me.lane == 0) {
#pragma unroll
    for (int pair = 0; pair < L::kHeadPairs; ++pair) shared.running[turn][pair] = now.of[pair];
  }
  return now.at(a.score_pair(me));
}

// Returns the maxima of one pair of heads over the group's blocks. Each member publishes one word
// {head 0, head 1, epoch} a pair, in slow layers only. As layers may be skipped, the epoch has 32
// bits and counts all layers of the launch.
template <typename L, RingAblation kAblation>
__device__ __forceinline__ float2 group_maximum(const Consumer<L, kAblation>& c, const Lane& me,
                                                const Site& site, int pair, float2 own) {
  const unsigned epoch = static_cast<unsigned>(c.step * c.p.layers + site.layer) + 1;
  unsigned* words = c.p.score_maxima + c.block.group() * kMembers * 4 * L::kHeadPairs + 4 * pair;
  if (me.warp == 0 && me.lane == 0) {
    ptx::store_relaxed16(words + 4 * L::kHeadPairs * c.block.member(),
                         make_uint4(__float_as_uint(own.x), __float_as_uint(own.y), epoch, 0));
  }
  uint4 v;
  warp_wait_until(c.p, site, epoch, [&](unsigned& seen) {
    v = ptx::load_relaxed16(words + 4 * L::kHeadPairs * (me.lane & 15));
    seen = v.z;
    return v.z == epoch || kAblation == RingAblation::kNoWaits;
  });
  return warp_maximum16(make_float2(__uint_as_float(v.x), __uint_as_float(v.y)));
}

// After all turns: rescales `r` to the maximum of the group's rows and the current position.
// Returns the current position's exponentials, heads 0 and 1 of value_pair().
template <typename L, bool kSplit, RingAblation kAblation>
__device__ __forceinline__ float2 settle_reference(const Attention<L, kSplit, kAblation>& a,
                                                   const Lane& me, Attended& r) {
  const Shared<L>& shared = a.c.s;
  float2 own = make_float2(kNoMaximum, kNoMaximum), m = own, current = own;
#pragma unroll
  for (int pair = 0; pair < L::kHeadPairs; ++pair) {
    const Statistics& st = shared.statistics[pair];
    float2 before = make_float2(kNoMaximum, kNoMaximum);
    if (a.tiles > 0) before = shared.running[a.turn_of(a.tiles - 1)][pair];
    const float current0 = st.current0 + st.reference0, current1 = st.current1 + st.reference1;
    float2 after = before;
    if (a.adds_current()) {
      after = make_float2(fmaxf(before.x, ceilf(current0)), fmaxf(before.y, ceilf(current1)));
    }
    if (kSplit) after = group_maximum(a.c, me, a.site, pair, after);
    if (pair != 0 && a.value_pair(me) != pair) continue;
    own = before;
    m = after;
    current = make_float2(current0, current1);
  }
  const float shrink0 = exp2f(own.x - m.x), shrink1 = exp2f(own.y - m.y);
  r.numerators[0] *= shrink0;
  r.numerators[1] *= shrink0;
  r.numerators[2] *= shrink1;
  r.numerators[3] *= shrink1;
  r.denominator *= (me.j & 1) != 0 ? shrink1 : shrink0;
  return make_float2(exp2f(current.x - m.x), exp2f(current.y - m.y));
}

}  // namespace mkbench::ring
