// Attention's slow path: where the distance from the bound on a score to the current position's
// score is too large for a fixed reference, the maximum is found turn by turn, and in split mode
// the blocks of a group exchange theirs. Maxima are rounded up to integers in log2 units, so that
// rescaling by their differences is exact.
#pragma once

#include "kernels/ring/phases/attention.cuh"

namespace mkbench::ring {

// Below every score: a block without rows.
inline constexpr float kNoMaximum = -1e30f;

struct SlowState {
  float maximum[2];  // of the rows so far, by head
};

// The maximum of a turn's scores over all warps.
template <bool kSplit, RingAblation kAblation>
__device__ __forceinline__ float2 turn_maximum(Attention<kSplit, kAblation>& a, const Lane& me,
                                               int turn, bool active, const float (&y)[4]) {
  float m0 = active ? fmaxf(y[0], y[2]) : kNoMaximum;
  float m1 = active ? fmaxf(y[1], y[3]) : kNoMaximum;
#pragma unroll
  for (int offset = 16; offset >= 4; offset >>= 1) {
    m0 = fmaxf(m0, shuffle_xor(m0, offset));
    m1 = fmaxf(m1, shuffle_xor(m1, offset));
  }
  auto& maxima = a.c.s.maxima[turn];
  if (me.lane == 0) {
    maxima[0][me.warp] = m0;
    maxima[1][me.warp] = m1;
  }
  ptx::named_sync<kConsumerThreads>(kConsumers);
  m0 = maxima[0][me.lane & 15];
  m1 = maxima[1][me.lane & 15];
#pragma unroll
  for (int offset = 8; offset > 0; offset >>= 1) {
    m0 = fmaxf(m0, shuffle_xor(m0, offset));
    m1 = fmaxf(m1, shuffle_xor(m1, offset));
  }
  return make_float2(ceilf(m0), ceilf(m1));
}

template <bool kSplit, RingAblation kAblation>
__device__ __forceinline__ void slow_turn(Attention<kSplit, kAblation>& a, const Lane& me,
                                          int first, const float (&s)[4], SlowState& state) {
  constexpr int kTiles = Attention<kSplit, kAblation>::kTiles;
  const int turn = first / kTiles & 1;
  const Statistics& st = a.c.s.statistics;
  const bool active = (me.warp >> 2) < min(a.tiles - first, kTiles);
  float y[4] = {s[0] * st.scale0, s[1] * st.scale1, s[2] * st.scale0, s[3] * st.scale1};
  a.mask_scores(a.rows_position(me, first), me.row, kNoMaximum, y);
  const float2 found = turn_maximum(a, me, turn, active, y);
  const float now0 = fmaxf(state.maximum[0], found.x), now1 = fmaxf(state.maximum[1], found.y);
  const float shrink0 = exp2f(state.maximum[0] - now0), shrink1 = exp2f(state.maximum[1] - now1);
  state.maximum[0] = now0;
  state.maximum[1] = now1;
#pragma unroll
  for (int i = 0; i < (kSplit ? 4 : 2); ++i) {
    a.o[i][0] *= shrink0;
    a.o[i][1] *= shrink0;
    a.o[i][2] *= shrink1;
    a.o[i][3] *= shrink1;
  }
  a.sum *= (me.row & 1) != 0 ? shrink1 : shrink0;
  if (active) {
    float e[4] = {ptx::exp2_approx(y[0] - now0), ptx::exp2_approx(y[1] - now1),
                  ptx::exp2_approx(y[2] - now0), ptx::exp2_approx(y[3] - now1)};
    a.mask_scores(a.rows_position(me, first), me.row, 0.0f, e);
    a.share_exponentials(me, turn, e);
  }
  if (first + kTiles >= a.tiles && me.j == 0 && me.row < 2) {
    a.c.s.denominators[me.row][me.warp] = a.sum;
  }
  ptx::named_sync<kConsumerThreads>(kConsumers);
  a.multiply_v(me, first, turn);
}

// The group's maxima: a word {head 0, head 1, epoch} a member. Written in slow layers only, so its
// epoch counts all layers of the launch in 32 bits.
template <RingAblation kAblation>
__device__ __forceinline__ float2 group_maximum(const Consumer<kAblation>& c, const Lane& me,
                                                const Site& site, const SlowState& state) {
  const unsigned epoch = static_cast<unsigned>(c.step * c.p.layers + site.layer) + 1;
  unsigned* words = c.p.score_maxima + c.block.group() * kMembers * 4;
  if (me.warp == 0 && me.lane == 0) {
    ptx::store_relaxed16(
        words + 4 * c.block.member(),
        make_uint4(__float_as_uint(state.maximum[0]), __float_as_uint(state.maximum[1]), epoch, 0));
  }
  uint4 v;
  wait_until(c.p, site, epoch, [&](unsigned& seen) {
    v = ptx::load_relaxed16(words + 4 * (me.lane & 15));
    seen = v.z;
    return v.z == epoch || kAblation == RingAblation::kNoWaits;
  });
  __syncwarp();
  float m0 = __uint_as_float(v.x), m1 = __uint_as_float(v.y);
#pragma unroll
  for (int offset = 8; offset > 0; offset >>= 1) {
    m0 = fmaxf(m0, shuffle_xor(m0, offset));
    m1 = fmaxf(m1, shuffle_xor(m1, offset));
  }
  return make_float2(m0, m1);
}

// All turns, given the first turn's scores and tiles; ends with everything relative to the group's
// maximum, as if that had been the fixed reference.
template <bool kSplit, RingAblation kAblation>
__device__ __forceinline__ Attended slow_attention(Attention<kSplit, kAblation>& a, int layer,
                                                   float (&s)[4]) {
  constexpr int kTiles = Attention<kSplit, kAblation>::kTiles;
  const Lane me = consumer_lane();
  const Statistics& st = a.c.s.statistics;
  SlowState state{{kNoMaximum, kNoMaximum}};
#pragma unroll 1
  for (int first = 0; first < a.tiles; first += kTiles) {
    if (first > 0) {
      a.load_k(first);
      a.scores(me, layer, s);
      a.load_v(first);
    }
    slow_turn(a, me, first, s, state);
  }
  const float own0 = state.maximum[0], own1 = state.maximum[1];
  const float current0 = st.current0 + st.reference0, current1 = st.current1 + st.reference1;
  if (a.adds_current()) {
    state.maximum[0] = fmaxf(own0, ceilf(current0));
    state.maximum[1] = fmaxf(own1, ceilf(current1));
  }
  float2 m = make_float2(state.maximum[0], state.maximum[1]);
  if (kSplit) m = group_maximum(a.c, me, a.site, state);
  const float shrink0 = exp2f(own0 - m.x), shrink1 = exp2f(own1 - m.y);
  Attended r{};
  if (a.tiles > 0) {
    a.collect(r);
    r.numerators[0] *= shrink0;
    r.numerators[1] *= shrink0;
    r.numerators[2] *= shrink1;
    r.numerators[3] *= shrink1;
    r.denominator = a.collect_denominator(me) * ((me.j & 1) != 0 ? shrink1 : shrink0);
  }
  if (a.adds_current()) {
    a.add_current(me, layer, exp2f(current0 - m.x), exp2f(current1 - m.y), r);
  }
  return r;
}

}  // namespace mkbench::ring
