// Attention of one kv head and its two query heads over the block's share of the context.
//   y_h(t) = (q_h . k_t) s_h, p_h(t) = 2^(y_h(t) - R_h), numerators sum p v, denominators sum p
// Reads  qkv words of the group's 16 blocks; K and V tiles from the ring; qk_norms; rope.
// Writes Shared::raw, rotated (for the statistics warp); returns numerators and denominator.
//
// K of the first turn sits in registers before q is polled. A warp takes 16 rows x 128 dimensions
// of K, and its exponentials go to the others through shared memory; then it takes 8 dimensions of
// V for all rows of the turn. q and the exponentials go through the tensor cores as two bf16
// planes each, in columns and rows that would otherwise repeat.
#pragma once

#include "kernels/ring/consumer.cuh"

namespace mkbench::ring {

// What a warp has of the attention result: numerators of dimensions 8 warp + 2j and + 1 of head 0,
// then of head 1 (all rows of the warp alike), and the denominator of head j % 2.
struct Attended {
  float numerators[4];
  float denominator;
};

// What a lane loads for its dimension ahead of time, unconverted: a conversion would wait for it.
// Of v, which has neither norm nor RoPE: one and no angle.
struct HeadInputs {
  unsigned weight_bits;  // QK-norm, bf16
  float2 angle;          // cosine, sine
};

// The group's q, k or v of this layer: each warp fetches one block's 32 rows, one a lane (dimension
// d in lanes 0-15, d + 64 in lanes 16-31), applies norm weight and RoPE and shares them. The norm's
// scale is applied to the scores.
template <RingAblation kAblation>
__device__ __forceinline__ void warp_head_vectors(Consumer<kAblation>& c, const Site& site,
                                                  int layer, const HeadInputs& inputs) {
  const Lane me = consumer_lane();
  const float x = await_word<kAblation>(
      c.p, site, c.p.qkv + (c.block.group() * kMembers + me.warp) * kQkvRows + me.lane, c.epoch);
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

template <bool kSplit, RingAblation kAblation>
struct Attention {
  using Share = ContextShare<kSplit>;
  static constexpr int kTiles = kTilesPerTurn<kSplit>;
  Consumer<kAblation>& c;
  const Share share;
  const int tiles, halves;
  const Site site;
  uint4 k[8];                  // the warp's 16 rows of this turn
  float o[kSplit ? 4 : 2][4];  // accumulators, [0..1] head 0, [2..3] head 1; even rows high planes
  float sum;                   // of this warp's exponentials, head row % 2

  __device__ __forceinline__ Attention(Consumer<kAblation>& consumer, int layer)
      : c(consumer),
        share{consumer.position(), consumer.block.member()},
        tiles(share.tiles()),
        halves(share.halves()),
        site{Phase::kAttention, layer, share.context} {}

  __device__ __forceinline__ void load_k(int first) {
    const Lane me = consumer_lane();
    const int count = min(tiles - first, kTiles), tile = me.warp >> 2;
#pragma unroll
    for (int i = 0; i < 8; ++i) k[i] = make_uint4(0, 0, 0, 0);
    if (tile < count) {
      const RingPosition r = c.ring.at.ahead(tile);
      c.ring.await(r);
      const uint4* q =
          reinterpret_cast<const uint4*>(c.ring.data(r) + (me.warp & 3) * 4096) + me.lane;
#pragma unroll
      for (int i = 0; i < 8; ++i) k[i] = q[32 * i];
      __syncwarp();
      if (me.lane == 0) c.ring.release(r, 4);
    }
    c.ring.at.advance(count);
  }

  // Scores of the warp's 16 rows: s[0] row `row` head 0, s[1] head 1, s[2], s[3] row + 8; not
  // scaled. mma's columns: head 0 and 1 of q's high plane, then of its low plane, and repeated.
  __device__ __forceinline__ void scores(const Lane& me, int layer, float (&s)[4]) const {
    const SplitPlane& q = c.s.rotated[layer & 1];
    const unsigned short* plane = (me.row & 2) != 0 ? q.low : q.high;
    const unsigned short* column = plane + (me.row & 1) * kHeadStride + 8 * me.j;
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
      s[i] += shuffle_xor(s[i], 1);
    }
  }

  // First position of the warp's 16 rows.
  __device__ __forceinline__ int rows_position(const Lane& me, int first) const {
    const int half = 2 * (first + (me.warp >> 2)) + (me.warp >> 1 & 1);
    return share.half_position(half) + 16 * (me.warp & 1);
  }

  // Gives the warp's exponentials to all warps, as A fragments of both planes, and adds them up.
  __device__ __forceinline__ void share_exponentials(const Lane& me, int turn,
                                                     const float (&e)[4]) {
    const unsigned high0 = ptx::bf16_pair(e[0], e[1]), high1 = ptx::bf16_pair(e[2], e[3]);
    const unsigned low0 = bf16_rest(e[0], e[1], high0), low1 = bf16_rest(e[2], e[3], high1);
    // Rows become columns: now row % 2 is the head, j the positions 2j, 2j + 1 (+ 8).
    const unsigned h0 = ptx::transpose8(high0), h1 = ptx::transpose8(high1);
    const unsigned l0 = ptx::transpose8(low0), l1 = ptx::transpose8(low1);
    if (me.row < 4) {
      unsigned* to = c.s.exponentials[turn][me.row >> 1][me.warp][me.j] + (me.row & 1);
      to[0] = me.row < 2 ? h0 : l0;
      to[2] = me.row < 2 ? h1 : l1;
    }
    constexpr unsigned kOnes = 0x3f803f80u;
    float y[4];
    ptx::mma_k16_first(y, make_uint4(h0, l0, h1, l1), kOnes, kOnes);
    sum += y[0] + y[2];
  }

  // o += exponentials x V of the turn's tiles, straight from the ring: in registers beforehand, V
  // cost 130 instructions a layer even for one tile.
  __device__ __forceinline__ void multiply_v(const Lane& me, int first, int turn) {
    const int count = min(tiles - first, kTiles);
    const auto* planes = c.s.exponentials[turn][me.row & 1];
#pragma unroll 1
    for (int t = 0; t < count; ++t) {
      c.ring.await(c.ring.at);
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

  // 32 rows of V, the warp's 8 dimensions. Rows that are not written yet hold anything, NaN too: a
  // zero factor would not silence them.
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

  __device__ __forceinline__ void mask_scores(int base, int row, float masked,
                                              float (&e)[4]) const {
    if (base + 16 <= share.context) return;
    if (base + row >= share.context) e[0] = e[1] = masked;
    if (base + 8 + row >= share.context) e[2] = e[3] = masked;
    __syncwarp();
  }

  // Exponentials of the warp's scores, shared with all warps; `reference` by head in log2 units.
  __device__ __forceinline__ void exponentiate(const Lane& me, int first, const float (&s)[4],
                                               float reference0, float reference1) {
    const Statistics& st = c.s.statistics;
    const float scale0 = st.scale0, scale1 = st.scale1;
    float e[4] = {ptx::exp2_approx(fmaf(s[0], scale0, -reference0)),
                  ptx::exp2_approx(fmaf(s[1], scale1, -reference1)),
                  ptx::exp2_approx(fmaf(s[2], scale0, -reference0)),
                  ptx::exp2_approx(fmaf(s[3], scale1, -reference1))};
    mask_scores(rows_position(me, first), me.row, 0.0f, e);
    share_exponentials(me, turn_of(first), e);
  }

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

  // Numerators with both planes added, the same in all rows of the warp.
  __device__ __forceinline__ void collect(Attended& a) const {
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      float x = o[0][n] + o[1][n];
      if (kSplit) x += o[kSplit ? 2 : 0][n] + o[kSplit ? 3 : 0][n];
      a.numerators[n] = x + shuffle_xor(x, 4);
    }
  }

  // The denominator of head j % 2 over all warps.
  __device__ __forceinline__ float collect_denominator(const Lane& me) const {
    const float* d = c.s.denominators[me.j & 1];
    float z = d[me.row] + d[me.row + 8];
    z += shuffle_xor(z, 4);
    z += shuffle_xor(z, 8);
    return z + shuffle_xor(z, 16);
  }

  // The current position, whose k and v are in shared memory: `e0`, `e1` are its exponentials.
  __device__ __forceinline__ void add_current(const Lane& me, int layer, float e0, float e1,
                                              Attended& a) const {
    const unsigned pair = *reinterpret_cast<const unsigned*>(
        &c.s.rotated[layer & 1].high[kValue * kHeadStride + 8 * me.warp + 2 * me.j]);
    a.numerators[0] = fmaf(low_bf16(pair), e0, a.numerators[0]);
    a.numerators[1] = fmaf(high_bf16(pair), e0, a.numerators[1]);
    a.numerators[2] = fmaf(low_bf16(pair), e1, a.numerators[2]);
    a.numerators[3] = fmaf(high_bf16(pair), e1, a.numerators[3]);
    a.denominator += (me.j & 1) != 0 ? e1 : e0;
  }

  // Whether this block adds the current position. The planted fault drops it, but never the only
  // one.
  __device__ __forceinline__ bool adds_current() const {
    const bool mine = !kSplit || c.block.member() == share.context % kMembers;
    return mine && (c.p.context_bias == 0 || share.context == 0);
  }
};

}  // namespace mkbench::ring
