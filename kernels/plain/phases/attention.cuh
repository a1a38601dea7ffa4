// Decode attention: softmax(q K^T / sqrt(head_dim)) V, with QK-norm, where the model has it, and
//        RoPE applied to q and k. The context is split; each split gives its maximum score m,
//        sum(2^(score - m)) and numerators sum(2^(score - m) V), where scores are in units of log2.
// Reads  qkv (qkv_width) fp32; QK-norm weights (head_dim) bf16; rope (max_context, head_dim / 2); K
//        and V rows (context, head_dim) bf16 of older positions.
// Writes K and V row (head_dim) bf16 of this position; attention_max, _sum (heads, splits),
//        attention_acc (heads, splits, head_dim) fp32.
// A block takes work items (unit, split): a unit is one part of the query heads of a GQA group, a
// split is a range of positions. A row group is kRowLanes lanes (half a warp for head_dim 128, a
// quarter for 64), which take one position at a time, 8 dimensions each, and keep a running maximum
// of their own. Rows of older positions do not depend on this layer and are loaded before the wait.
#pragma once

#include "kernels/plain/exchange.cuh"

namespace mkbench::plain {

template <typename S>
inline constexpr int kRowGroups = kThreads<S> / Dims<S>::kRowLanes;
// Positions whose K and V rows a row group loads at once, 16 KB for each position in a block of 16 warps. One more
// spills registers, which also hold the sums of every query head of the item.
template <typename S>
inline constexpr int kRowsInFlight = Dims<S>::kPartHeads <= 2 ? 3 : 1;
inline constexpr float kLog2E = 1.4426950408889634f;

// The values of one head as a warp holds them: lane i < kHeadDim / 4 has elements 2i, 2i+1 and, half a head
// further, the elements with which RoPE pairs these; lanes beyond hold zeros.
struct HeadValues {
  float2 low, high;
};

template <int kHeadDim>
__device__ __forceinline__ HeadValues load_head(Thread me, const float* raw) {
  if (me.lane >= kHeadDim / 4) return {};
  const float2* at = reinterpret_cast<const float2*>(raw) + me.lane;
  return {ptx::load_l2(at), ptx::load_l2(at + kHeadDim / 4)};
}

template <int kHeadDim>
__device__ __forceinline__ HeadValues warp_norm(Thread me, HeadValues x, const unsigned short* norm,
                                                float eps) {
  const float squares =
      warp_sum(x.low.x * x.low.x + x.low.y * x.low.y + x.high.x * x.high.x + x.high.y * x.high.y);
  const float scale = rsqrtf(squares * (1.0f / kHeadDim) + eps);
  const unsigned* pairs = reinterpret_cast<const unsigned*>(norm) + me.lane % (kHeadDim / 4);
  const unsigned low = __ldg(pairs), high = __ldg(pairs + kHeadDim / 4);
  return {make_float2(x.low.x * scale * low_bf16(low), x.low.y * scale * high_bf16(low)),
          make_float2(x.high.x * scale * low_bf16(high), x.high.y * scale * high_bf16(high))};
}

// Rotates the pairs (i, i + kHeadDim / 2).
template <int kHeadDim>
__device__ __forceinline__ HeadValues warp_rope(Thread me, HeadValues x, const RopePair* rope) {
  const float a0 = x.low.x, a1 = x.low.y, b0 = x.high.x, b1 = x.high.y;
  const float4 turn =  // cos, sin, cos, sin
      __ldg(reinterpret_cast<const float4*>(rope) + me.lane % (kHeadDim / 4));
  return {make_float2(a0 * turn.x - b0 * turn.y, a1 * turn.z - b1 * turn.w),
          make_float2(b0 * turn.x + a0 * turn.y, b1 * turn.z + a1 * turn.w)};
}

enum class Head { kQuery, kKey };
// The query or the key of a head, from its raw values: QK-norm over the head, where the model has it, then
// RoPE by the angles of its position.
template <typename S, Head kHead>
__device__ __forceinline__ HeadValues warp_norm_rope(Thread me, const LaunchParams& p, HeadValues x,
                                                     const unsigned short* slab, int position) {
  using D = Dims<S>;
  if constexpr (D::kShape.qk_norm) {
    const auto* norm = slab + (kHead == Head::kQuery ? D::kLayout.q_norm : D::kLayout.k_norm);
    x = warp_norm<D::kHeadDim>(me, x, norm, p.eps);
  }
  const RopePair* rope = p.rope + static_cast<size_t>(position) * (D::kHeadDim / 2);
  return warp_rope<D::kHeadDim>(me, x, rope);
}

// A value as the KV cache holds it.
template <typename S>
__device__ __forceinline__ unsigned cached(float x) {
  return narrow(x);
}

// Running softmax of one row group over its positions, for each query head of an item.
template <int kHeads>
struct PartialSoftmax {
  float maximum[kHeads], sum[kHeads], numerators[kHeads][8];

  __device__ __forceinline__ PartialSoftmax() {
#pragma unroll
    for (int h = 0; h < kHeads; ++h) {
      maximum[h] = kNoScore;
      sum[h] = 0;
#pragma unroll
      for (int d = 0; d < 8; ++d) numerators[h][d] = 0;
    }
  }

  // Merges the partial of the lane at `offset`, which holds the same dimensions of other positions.
  __device__ __forceinline__ void merge_lane(int offset) {
#pragma unroll
    for (int h = 0; h < kHeads; ++h) {
      const float other = __shfl_xor_sync(~0u, maximum[h], offset);
      const float top = fmaxf(maximum[h], other);
      const float mine = ptx::exp2_approx(maximum[h] - top), theirs = ptx::exp2_approx(other - top);
      sum[h] = sum[h] * mine + __shfl_xor_sync(~0u, sum[h], offset) * theirs;
#pragma unroll
      for (int d = 0; d < 8; ++d) {
        numerators[h][d] =
            numerators[h][d] * mine + __shfl_xor_sync(~0u, numerators[h][d], offset) * theirs;
      }
      maximum[h] = top;
    }
  }
};

// 8 bf16 values of a K or V row.
__device__ __forceinline__ void widen8(uint4 w, float (&out)[8]) {
  out[0] = low_bf16(w.x), out[1] = high_bf16(w.x), out[2] = low_bf16(w.y), out[3] = high_bf16(w.y);
  out[4] = low_bf16(w.z), out[5] = high_bf16(w.z), out[6] = low_bf16(w.w), out[7] = high_bf16(w.w);
}

// The positions of a work item, and which of them a row group takes.
template <typename S>
struct ContextSlice {
  Thread me;
  unsigned
      row;  // index of row 0 of this kv head and layer in units of 16 bytes, kRowLanes units a row
  Range positions;
  int newest;  // this position's row comes from shared memory, because this phase writes it

  // Which 8 of a row's elements this lane has.
  __device__ __forceinline__ int octet() const { return me.lane % Dims<S>::kRowLanes; }

  __device__ __forceinline__ int position(int pass, int i) const {
    constexpr int kWarpGroups = 32 / Dims<S>::kRowLanes;
    const int group = me.warp * kWarpGroups + me.lane / Dims<S>::kRowLanes;
    return positions.begin + (pass * kRowsInFlight<S> + i) * kRowGroups<S> + group;
  }
};

template <typename S>
struct KvRows {
  uint4 k[kRowsInFlight<S>], v[kRowsInFlight<S>];

  // Positions outside of the slice are never read, and add_rows() masks their slots by select:
  // unused KV rows are poisoned with NaN, and a NaN would pass through a factor of zero.
  __device__ __forceinline__ void load(const LaunchParams& p, const ContextSlice<S>& slice,
                                       int pass) {
#pragma unroll
    for (int i = 0; i < kRowsInFlight<S>; ++i) {
      const int at = slice.position(pass, i);
      k[i] = v[i] = make_uint4(0, 0, 0, 0);
      if (at < slice.positions.end && at != slice.newest) {
        const unsigned from =
            slice.row + static_cast<unsigned>(at * Dims<S>::kRowLanes + slice.octet());
        k[i] = ptx::load_l2(reinterpret_cast<const uint4*>(p.k_cache) + from);
        v[i] = ptx::load_l2(reinterpret_cast<const uint4*>(p.v_cache) + from);
      }
    }
  }
};

template <typename S>
__device__ __forceinline__ bool attends(const ContextSlice<S>& slice, int position) {
  return position < slice.positions.end;
}

// Scores of a pass of rows for one query head, equal in all lanes of a row group. Slots without
// a position get kNoScore.
template <typename S>
__device__ __forceinline__ void score_rows(const Shared<S>& s, const ContextSlice<S>& slice,
                                           int pass, const KvRows<S>& rows, int head,
                                           float (&scores)[kRowsInFlight<S>]) {
  const int octet = slice.octet();
  const float4 q0 = s.attention.query[head][octet * 2], q1 = s.attention.query[head][octet * 2 + 1];
#pragma unroll
  for (int i = 0; i < kRowsInFlight<S>; ++i) {
    float k[8];
    widen8(rows.k[i], k);
    float dot = k[0] * q0.x;
    dot = fmaf(k[1], q0.y, dot), dot = fmaf(k[2], q0.z, dot), dot = fmaf(k[3], q0.w, dot);
    dot = fmaf(k[4], q1.x, dot), dot = fmaf(k[5], q1.y, dot), dot = fmaf(k[6], q1.z, dot);
    scores[i] = fmaf(k[7], q1.w, dot);
  }
#pragma unroll
  for (int offset = Dims<S>::kRowLanes / 2; offset > 0; offset >>= 1) {
#pragma unroll
    for (int i = 0; i < kRowsInFlight<S>; ++i) scores[i] += __shfl_xor_sync(~0u, scores[i], offset);
  }
#pragma unroll
  for (int i = 0; i < kRowsInFlight<S>; ++i) {
    if (!attends<S>(slice, slice.position(pass, i))) scores[i] = kNoScore;
  }
}

// The running maximum after a pass; the softmax weights are relative to it.
template <typename S>
__device__ __forceinline__ float running_maximum(float maximum,
                                                 const float (&scores)[kRowsInFlight<S>]) {
#pragma unroll
  for (int i = 0; i < kRowsInFlight<S>; ++i) maximum = fmaxf(maximum, scores[i]);
  return maximum;
}

template <typename S>
__device__ __forceinline__ float add_weighted(float sum, float weight, float value) {
  return fmaf(weight, value, sum);
}

// Adds a pass of rows to the row group's softmax.
template <typename S>
__device__ __forceinline__ void add_rows(const Shared<S>& s, const ContextSlice<S>& slice, int pass,
                                         KvRows<S>& rows,
                                         PartialSoftmax<Dims<S>::kPartHeads>& softmax) {
#pragma unroll
  for (int i = 0; i < kRowsInFlight<S>; ++i) {
    // The newest row is taken inside the slice only: in other work items new_k and new_v are not
    // set, and a weight of zero would let a NaN through.
    const int at = slice.position(pass, i);
    if (at == slice.newest && at < slice.positions.end) {
      rows.k[i] = s.attention.new_k[slice.octet()];
      rows.v[i] = s.attention.new_v[slice.octet()];
    }
  }
#pragma unroll
  for (int h = 0; h < Dims<S>::kPartHeads; ++h) {
    float scores[kRowsInFlight<S>];
    score_rows<S>(s, slice, pass, rows, h, scores);
    const float top = running_maximum<S>(softmax.maximum[h], scores);
    const float rescale = ptx::exp2_approx(softmax.maximum[h] - top);
    softmax.maximum[h] = top;
    softmax.sum[h] *= rescale;
#pragma unroll
    for (int d = 0; d < 8; ++d) softmax.numerators[h][d] *= rescale;
#pragma unroll
    for (int i = 0; i < kRowsInFlight<S>; ++i) {
      // A row group without any position has top = kNoScore, where the exponential would give
      // weight 1.
      const float weight = scores[i] == kNoScore ? 0.0f : ptx::exp2_approx(scores[i] - top);
      softmax.sum[h] += weight;
      float v[8];
      widen8(rows.v[i], v);
#pragma unroll
      for (int d = 0; d < 8; ++d) {
        softmax.numerators[h][d] = add_weighted<S>(softmax.numerators[h][d], weight, v[d]);
      }
    }
  }
}

// The query heads of a unit: its first one, and how many there are.
struct UnitHeads {
  int first, count;
};
template <typename S>
__device__ __forceinline__ UnitHeads unit_heads(int unit) {
  using D = Dims<S>;
  const int before = unit % D::kParts * D::kPartHeads;
  const int count =
      D::kGroup % D::kParts == 0 ? D::kPartHeads : min(D::kPartHeads, D::kGroup - before);
  return {unit / D::kParts * D::kGroup + before, count};
}

// Puts the query heads of the unit into shared memory. The item that holds the newest position puts its K
// and V there too and, in the group's first unit, into the cache.
template <typename S>
__device__ __forceinline__ void block_prepare(Thread me, const LaunchParams& p, Shared<S>& s,
                                              int layer, int unit, int position,
                                              bool keeps_newest) {
  using D = Dims<S>;
  const unsigned short* slab = p.layers + layer * D::kLayout.stride;
  const int warp = me.warp, lane = me.lane, kv_head = unit / D::kParts;
  const UnitHeads heads = unit_heads<S>(unit);
  const size_t row =
      (static_cast<size_t>(layer * D::kKvHeads + kv_head) * p.max_context + position) * D::kHeadDim;
  const bool holds = lane < D::kHeadLanes;
  if (warp < heads.count) {
    const float* raw = p.qkv + (heads.first + warp) * D::kHeadDim;
    const HeadValues q =
        warp_norm_rope<S, Head::kQuery>(me, p, load_head<D::kHeadDim>(me, raw), slab, position);
    if (!holds) return;
    const float scale = rsqrtf(static_cast<float>(D::kHeadDim)) * kLog2E;  // scores in log2 units
    float2* out = reinterpret_cast<float2*>(s.attention.query[warp]) + lane;
    out[0] = make_float2(q.low.x * scale, q.low.y * scale);
    out[D::kHeadLanes] = make_float2(q.high.x * scale, q.high.y * scale);
  } else if (keeps_newest && warp >= D::kPartHeads && warp < D::kPartHeads + 2) {
    const bool is_k = warp == D::kPartHeads;
    const float* raw = p.qkv + D::kQ + (is_k ? 0 : D::kKv) + kv_head * D::kHeadDim;
    HeadValues x = load_head<D::kHeadDim>(me, raw);
    if (is_k) x = warp_norm_rope<S, Head::kKey>(me, p, x, slab, position);
    if (!holds) return;
    const unsigned low = cached<S>(x.low.x) | cached<S>(x.low.y) << 16;
    const unsigned high = cached<S>(x.high.x) | cached<S>(x.high.y) << 16;
    unsigned* near =
        reinterpret_cast<unsigned*>(is_k ? s.attention.new_k : s.attention.new_v) + lane;
    unsigned* far = reinterpret_cast<unsigned*>((is_k ? p.k_cache : p.v_cache) + row) + lane;
    near[0] = low;
    near[D::kHeadLanes] = high;
    if (unit % D::kParts != 0) return;
    far[0] = low;
    far[D::kHeadLanes] = high;
  }
}

// Merges the partials of the warps and writes the item's result to global memory.
template <typename S>
__device__ __forceinline__ void block_publish(Thread me, const LaunchParams& p, Shared<S>& s,
                                              int unit, int split,
                                              PartialSoftmax<Dims<S>::kPartHeads>& softmax) {
  using D = Dims<S>;
#pragma unroll
  for (int offset = 16; offset >= D::kRowLanes; offset >>= 1) softmax.merge_lane(offset);
  const int warp = me.warp, lane = me.lane;
#pragma unroll
  for (int h = 0; h < D::kPartHeads; ++h) {
    const float(&n)[8] = softmax.numerators[h];
    if (lane < D::kRowLanes) {
      s.attention.numerators[warp][h][lane * 2] = make_float4(n[0], n[1], n[2], n[3]);
      s.attention.numerators[warp][h][lane * 2 + 1] = make_float4(n[4], n[5], n[6], n[7]);
    }
    if (lane == 0) {
      s.attention.maxima[warp][h] = softmax.maximum[h];
      s.attention.sums[warp][h] = softmax.sum[h];
    }
  }
  __syncthreads();
  const UnitHeads heads = unit_heads<S>(unit);
  for (int i = me.index; i < heads.count * D::kHeadDim; i += kThreads<S>) {
    const int h = i / D::kHeadDim, d = i % D::kHeadDim;
    float top = s.attention.maxima[0][h];
#pragma unroll
    for (int w = 1; w < kWarps<S>; ++w) top = fmaxf(top, s.attention.maxima[w][h]);
    float sum = 0, numerator = 0;
#pragma unroll
    for (int w = 0; w < kWarps<S>; ++w) {
      const float factor = ptx::exp2_approx(s.attention.maxima[w][h] - top);
      sum = fmaf(s.attention.sums[w][h], factor, sum);
      numerator = add_weighted<S>(numerator, factor,
                                  reinterpret_cast<const float*>(s.attention.numerators[w][h])[d]);
    }
    const int slot = (heads.first + h) * kMaxSplits + split;
    p.attention_acc[static_cast<size_t>(slot) * D::kHeadDim + d] = numerator;
    if (d == 0) {
      p.attention_max[slot] = top;
      p.attention_sum[slot] = sum;
    }
  }
}

template <typename S, typename X>
__device__ __forceinline__ bool phase_attention(const LaunchParams& p, Shared<S>& s, const X& x,
                                                int step, int layer) {
  const Thread me = this_thread();
  using D = Dims<S>;
  const int position = p.position + step;
  const int context = attended_positions(p, position);
  const int blocks = static_cast<int>(gridDim.x);
  const int splits = attention_splits(context, D::kKvHeads * D::kParts, blocks);
  const int items = D::kKvHeads * D::kParts * splits;
  auto slice_of = [&](int item) {
    const int kv_head = item / splits / D::kParts;
    const auto row =
        static_cast<unsigned>((layer * D::kKvHeads + kv_head) * p.max_context * D::kRowLanes);
    return ContextSlice<S>{me, row, partition(context, splits, item % splits), position};
  };
  const int first = static_cast<int>(blockIdx.x);
  KvRows<S> rows;
  ContextSlice<S> slice = slice_of(first);
  if (first < items) rows.load(p, slice, 0);

  if (!x.block_wait(s, Phase::kAttention, layer, position)) return false;
#pragma unroll 1
  for (int item = first; item < items; item += blocks) {
    if (item != first) {
      __syncthreads();  // other warps still read the previous item in shared memory
      slice = slice_of(item);
      rows.load(p, slice, 0);
    }
    // The last split holds the newest position, and writes its K and V even where a context_bias of
    // -1 takes that position out of the split.
    const bool keeps_newest = item % splits == splits - 1;
    block_prepare<S>(me, p, s, layer, item / splits, position, keeps_newest);
    __syncthreads();
    PartialSoftmax<D::kPartHeads> softmax;
    const int passes = ceil_div(slice.positions.size(), kRowsInFlight<S> * kRowGroups<S>);
#pragma unroll 1
    for (int pass = 0; pass < passes; ++pass) {
      if (pass > 0) rows.load(p, slice, pass);
      add_rows<S>(s, slice, pass, rows, softmax);
    }
    block_publish<S>(me, p, s, item / splits, item % splits, softmax);
  }
  __syncthreads();
  if (me.warp == 0) x.warp_arrive(s);
  return true;
}

}  // namespace mkbench::plain
