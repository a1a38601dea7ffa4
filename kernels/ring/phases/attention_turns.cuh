// The pieces of a turn of attention. A turn is what a block attends to between two barriers: up to
// kTilesPerTurn tiles of 64 positions (attend() in attention.cuh loops over turns).
//   scores        s = K q           warp w: tile w / 4, its 16 rows from 16 (w % 4) on, both heads
//   exponentials  e = 2^(s s_h - R) handed to all warps through Shared::exponentials
//   values        o += e V          warp w: dimensions 8 w .. 8 w + 7, all rows of the turn
// q and the exponentials are fp32 in two bf16 planes (SplitPlane). Two heads fill only 2 of the 8
// columns of the MMA for scores and 2 of the 16 rows of the MMA for values: spare columns and rows
// carry the low planes. Four heads fill 4 of each. A lane always works on a pair of heads, h and
// h + 1, which the comments call head 0 and head 1: score_pair() and value_pair() say which pair.
#pragma once

#include "kernels/ring/consumer.cuh"

namespace mkbench::ring {

// A lane's part of the attention result, for its value_pair(): the numerators of dimensions
// 8 warp + 2j and + 1, first for head 0, then for head 1, and the denominator of one head, number
// j % 2. Lanes that differ in Lane::row alone, and have the same pair, hold equal values.
struct Attended {
  float numerators[4];
  float denominator;
};

template <typename L, bool kSplit, RingAblation kAblation>
struct Attention {
  using Share = ContextShare<kSplit>;
  static constexpr int kHeads = L::kHeads;
  static constexpr int kTiles = kTilesPerTurn<L, kSplit>;
  Consumer<L, kAblation>& c;
  const Share share;
  const int tiles, halves;
  const Site site;
  uint4 k[8];  // the warp's 16 rows of K in this turn
  // Accumulators of exponentials x V: elements [0..1] are head 0, [2..3] head 1; even values of
  // Lane::row are products of the high plane, odd ones of the low plane.
  float o[kSplit ? 4 : 2][4];
  float sum;  // sum of this warp's exponentials of one head, number Lane::row % kHeads

  __device__ __forceinline__ Attention(Consumer<L, kAblation>& consumer, int layer)
      : c(consumer),
        share{consumer.position(), consumer.block.member()},
        tiles(share.tiles()),
        halves(share.halves()),
        site{Phase::kAttention, layer, share.context} {}

  // The pair of heads of a lane's scores, and the pair of heads of its sums over V.
  static __device__ __forceinline__ int score_pair(const Lane& me) {
    return L::kHeadPairs == 1 ? 0 : me.j & 1;
  }
  static __device__ __forceinline__ int value_pair(const Lane& me) {
    return L::kHeadPairs == 1 ? 0 : me.row >> 1 & 1;
  }

  // Loads the warp's rows of K for the turn that begins with tile `first` into registers; zeros if
  // the turn has no tile for this warp.
  __device__ __forceinline__ void load_k(int first) {
    const Lane me = consumer_lane();
    const int count = min(tiles - first, kTiles), tile = me.warp >> 2;
#pragma unroll
    for (int i = 0; i < 8; ++i) k[i] = make_uint4(0, 0, 0, 0);
    if (tile < count) {
      const RingPosition<L> r = c.ring.at.ahead(tile);
      c.ring.await_within(r);
      const uint4* q =
          reinterpret_cast<const uint4*>(c.ring.data(r) + (me.warp & 3) * 4096) + me.lane;
#pragma unroll
      for (int i = 0; i < 8; ++i) k[i] = q[32 * i];
      __syncwarp();
      if (me.lane == 0) c.ring.release(r, 4);
    }
    c.ring.at.advance(count);
  }

  // Unscaled scores of the warp's 16 rows for the heads of score_pair(): s[0] and s[1] are those of
  // row `row` with heads 0 and 1, s[2] and s[3] those of row + 8. The MMA's first columns are q's
  // high planes of all heads, then come their low planes; two heads leave columns 4-7, which repeat
  // the others.
  __device__ __forceinline__ void scores(const Lane& me, int layer, float (&s)[4]) const {
    const SplitPlane<L>& q = c.s.rotated[layer & 1];
    const unsigned short* plane = (me.row & kHeads) != 0 ? q.low : q.high;
    const unsigned short* column = plane + (me.row & (kHeads - 1)) * kHeadStride + 8 * me.j;
    float d[2][4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint4 b = *reinterpret_cast<const uint4*>(column + 32 * i);
      if (i == 0) {
        ptx::mma_k16_first(d[0], k[0], b.x, b.y);
        ptx::mma_k16_first(d[1], k[1], b.z, b.w);
      } else {
        ptx::mma_k16(d[0], k[2 * i], b.x, b.y);
        ptx::mma_k16(d[1], k[2 * i + 1], b.z, b.w);
      }
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      s[i] = d[0][i] + d[1][i];
      s[i] += shuffle_xor(s[i], kHeads / 2);
    }
  }

  // Position of the first of the warp's 16 rows.
  __device__ __forceinline__ int rows_position(const Lane& me, int first) const {
    const int half = 2 * (first + (me.warp >> 2)) + (me.warp >> 1 & 1);
    return share.half_position(half) + 16 * (me.warp & 1);
  }

  // Writes the warp's exponentials to shared memory for all warps, as A fragments of both planes,
  // and adds them to `sum`.
  __device__ __forceinline__ void share_exponentials(const Lane& me, int turn,
                                                     const float (&e)[4]) {
    const unsigned high0 = ptx::bf16_pair(e[0], e[1]), high1 = ptx::bf16_pair(e[2], e[3]);
    const unsigned low0 = bf16_rest(e[0], e[1], high0), low1 = bf16_rest(e[2], e[3], high1);
    // The transposes turn rows into columns: now Lane::row % kHeads is the head, and Lane::j stands for
    // positions 2j, 2j + 1 (h0, l0) or 2j + 8, 2j + 9 (h1, l1).
    const unsigned h0 = ptx::transpose8(high0), h1 = ptx::transpose8(high1);
    const unsigned l0 = ptx::transpose8(low0), l1 = ptx::transpose8(low1);
    if (me.row < 2 * kHeads) {
      const int plane = me.row >> (kHeads == 2 ? 1 : 2);
      unsigned* to = c.s.exponentials[turn][plane][value_pair(me)][me.warp][me.j] + (me.row & 1);
      to[0] = me.row < kHeads ? h0 : l0;
      to[2] = me.row < kHeads ? h1 : l1;
    }
    constexpr unsigned kOnes = 0x3f803f80u;
    float y[4];
    ptx::mma_k16_first(y, make_uint4(h0, l0, h1, l1), kOnes, kOnes);
    sum += y[0] + y[2];
  }

  // o += exponentials x V of the turn's tiles. V is read straight from the ring: loading it into
  // registers ahead of time cost 130 instructions a warp and layer even for one tile.
  __device__ __forceinline__ void multiply_v(const Lane& me, int first, int turn) {
    const int count = min(tiles - first, kTiles);
    const auto* planes = c.s.exponentials[turn][me.row & 1][value_pair(me)];
#pragma unroll 1
    for (int t = 0; t < count; ++t) {
      c.ring.await_within(c.ring.at);
      __syncwarp();
      const char* tile = c.ring.data(c.ring.at) + me.warp * 512 + me.lane * 16;
      const int half = 2 * (first + t);
      multiply_half(me, half, tile, planes + 4 * t, 0);
      if (half + 1 < halves) {
        multiply_half(me, half + 1, tile + kHalfTileBytes, planes + 4 * t + 2, kSplit ? 2 : 0);
      }
      __syncwarp();
      if (me.lane == 0) c.ring.release(c.ring.at, 1);
      c.ring.at.advance();
    }
  }

  // 32 rows of V, the warp's 8 dimensions. Rows beyond the context hold arbitrary bits, also NaN,
  // which times an exponential of zero is still NaN: they are masked to zero here.
  __device__ __forceinline__ void multiply_half(const Lane& me, int half, const char* from,
                                                const unsigned (*planes)[4][4], int at) {
    uint4 v = *reinterpret_cast<const uint4*>(from);
    const uint4 a = *reinterpret_cast<const uint4*>(planes[0][me.j]);
    const uint4 b = *reinterpret_cast<const uint4*>(planes[1][me.j]);
    const int written = share.context - share.half_position(half);
    if (written < kHalfTileRows) {
      const auto kept = [&](int row) {
        return row + 1 < written ? ~0u : row < written ? 0xffffu : 0u;
      };
      v.x &= kept(2 * me.j);
      v.y &= kept(8 + 2 * me.j);
      v.z &= kept(16 + 2 * me.j);
      v.w &= kept(24 + 2 * me.j);
    }
    ptx::mma_k16(o[at], a, v.x, v.y);
    ptx::mma_k16(o[at + 1], b, v.z, v.w);
  }

  // Rows at and beyond the context get `masked`; `base` is the position of the warp's first row.
  __device__ __forceinline__ void mask_scores(int base, int row, float masked,
                                              float (&e)[4]) const {
    if (base + 16 <= share.context) return;
    if (base + row >= share.context) e[0] = e[1] = masked;
    if (base + 8 + row >= share.context) e[2] = e[3] = masked;
    __syncwarp();
  }

  // Exponentials of the warp's scores, handed to all warps. `reference0` and `reference1` are R of
  // the two heads, in log2 units.
  __device__ __forceinline__ void exponentiate(const Lane& me, int first, const float (&s)[4],
                                               float reference0, float reference1) {
    const Statistics& st = c.s.statistics[score_pair(me)];
    const float scale0 = st.scale0, scale1 = st.scale1;
    float e[4] = {ptx::exp2_approx(fmaf(s[0], scale0, -reference0)),
                  ptx::exp2_approx(fmaf(s[1], scale1, -reference1)),
                  ptx::exp2_approx(fmaf(s[2], scale0, -reference0)),
                  ptx::exp2_approx(fmaf(s[3], scale1, -reference1))};
    mask_scores(rows_position(me, first), me.row, 0.0f, e);
    share_exponentials(me, turn_of(first), e);
  }

  // Parity of the turn that begins with tile `first`.
  static __device__ __forceinline__ int turn_of(int first) { return first / kTiles & 1; }
  __device__ __forceinline__ bool has_rows(const Lane& me, int first) const {
    return (me.warp >> 2) < min(tiles - first, kTiles);
  }

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int i = 0; i < (kSplit ? 4 : 2); ++i) {
#pragma unroll
      for (int n = 0; n < 4; ++n) o[i][n] = 0.0f;
    }
    sum = 0.0f;
  }

  // Numerators with both planes added. Lanes of equal value_pair() and Lane::j hold equal values.
  __device__ __forceinline__ void collect(Attended& a) const {
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      float x = o[0][n] + o[1][n];
      if (kSplit) x += o[kSplit ? 2 : 0][n] + o[kSplit ? 3 : 0][n];
      a.numerators[n] = x + shuffle_xor(x, 4);
    }
  }

  // Sum over all warps of the denominator of one head: number j % 2 of value_pair()'s heads.
  __device__ __forceinline__ float collect_denominator(const Lane& me) const {
    const float* d = c.s.denominators[me.j & (kHeads - 1)];
    float z = d[me.row] + d[me.row + 8];
    z += shuffle_xor(z, 4);
    z += shuffle_xor(z, 8);
    z += shuffle_xor(z, 16);
    return L::kHeadPairs == 1 ? z : __shfl_sync(~0u, z, 2 * value_pair(me) + (me.j & 1));
  }

  // Adds the current position, whose v is in shared memory; `e0` and `e1` are its exponentials.
  __device__ __forceinline__ void add_current(const Lane& me, int layer, float e0, float e1,
                                              Attended& a) const {
    const unsigned pair = *reinterpret_cast<const unsigned*>(
        &c.s.rotated[layer & 1].high[kValue<L> * kHeadStride + 8 * me.warp + 2 * me.j]);
    a.numerators[0] = fmaf(low_bf16(pair), e0, a.numerators[0]);
    a.numerators[1] = fmaf(high_bf16(pair), e0, a.numerators[1]);
    a.numerators[2] = fmaf(low_bf16(pair), e1, a.numerators[2]);
    a.numerators[3] = fmaf(high_bf16(pair), e1, a.numerators[3]);
    a.denominator += (me.j & 1) != 0 ? e1 : e0;
  }

  // Whether this block adds the current position; with a split, one block of the group does. The
  // planted fault (context_bias) drops that position, unless it is the only one.
  __device__ __forceinline__ bool adds_current() const {
    const bool mine = !kSplit || c.block.member() == share.context % kMembers;
    return mine && (c.p.context_bias == 0 || share.context == 0);
  }
};

}  // namespace mkbench::ring
