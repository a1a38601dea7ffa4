// O-projection: residual += W_o attention, where attention merges the splits of each head.
// Reads  attention_max, _sum (heads, splits), attention_acc (heads, splits, head_dim), residual
//        (hidden) fp32; W_o (hidden, q_width) bf16.
// Writes residual (hidden) fp32.
// Every block merges the splits of all heads for itself, which costs L2 reads but no further
// exchange.
// A block takes a contiguous range of rows, and reads and writes the residual of these rows only.
#pragma once

#include "kernels/plain/exchange.cuh"
#include "kernels/plain/matvec.cuh"

namespace mkbench::plain {

// Merges the splits of one head: softmax partials with maxima m_i, sums l_i and numerators a_i give
// sum(2^(m_i - M) a_i) / sum(2^(m_i - M) l_i), M = max(m_i). The first kHeadLanes lanes take 4
// dimensions each.
template <typename S>
__device__ __forceinline__ void warp_combine_head(Thread me, const LaunchParams& p, Shared<S>& s,
                                                  int head, int splits) {
  using D = Dims<S>;
  static_assert(kMaxSplits <= 32, "a lane takes one split");
  const int lane = me.lane;
  const bool has_split = lane < splits;
  const float maximum =
      has_split ? ptx::load_l2(p.attention_max + head * kMaxSplits + lane) : kNoScore;
  const float sum = has_split ? ptx::load_l2(p.attention_sum + head * kMaxSplits + lane) : 0.0f;
  float top = maximum;
#pragma unroll
  for (int offset = 16; offset > 0; offset >>= 1)
    top = fmaxf(top, __shfl_xor_sync(~0u, top, offset));
  const float factor = has_split ? ptx::exp2_approx(maximum - top) : 0.0f;
  const float inverse = 1.0f / warp_sum(sum * factor);
  const float4* acc = reinterpret_cast<const float4*>(p.attention_acc) +
                      static_cast<size_t>(head) * kMaxSplits * D::kHeadLanes + lane % D::kHeadLanes;
  float4 out = make_float4(0, 0, 0, 0);
#pragma unroll(kCombinedAtOnce <S>)
  for (int i = 0; i < splits; ++i) {
    const float4 a = ptx::load_l2(acc + i * D::kHeadLanes);
    const float f = __shfl_sync(~0u, factor, i);
    out.x = fmaf(a.x, f, out.x);
    out.y = fmaf(a.y, f, out.y);
    out.z = fmaf(a.z, f, out.z);
    out.w = fmaf(a.w, f, out.w);
  }
  if (lane >= D::kHeadLanes) return;
  // 4 neighbouring elements stay neighbours in activation_index().
  const int e = head * D::kHeadDim + lane * 4;
  s.activations[activation_index(e, D::kQ) / 4] =
      make_float4(out.x * inverse, out.y * inverse, out.z * inverse, out.w * inverse);
}

// Leaves the phase's vector in Shared::activations.
template <typename S>
__device__ __forceinline__ void block_o_proj_input(Thread me, const LaunchParams& p, Shared<S>& s,
                                                   int step) {
  using D = Dims<S>;
  const int splits = attention_splits(attended_positions(p, p.position + step),
                                      D::kKvHeads * D::kParts, static_cast<int>(gridDim.x));
#pragma unroll 1
  for (int head = me.warp; head < D::kHeads; head += kWarps<S>) {
    warp_combine_head<S>(me, p, s, head, splits);
  }
  __syncthreads();
}

template <typename S, typename X>
__device__ __forceinline__ bool phase_o_proj(const LaunchParams& p, Shared<S>& s, const X& x,
                                             int step, int layer) {
  const Thread me = this_thread();
  using D = Dims<S>;
  using Tile = TileMatvec<S, D::kHidden, D::kQ>;
  const unsigned short* slab = p.layers + layer * D::kLayout.stride;
  const unsigned short* weights = slab + D::kLayout.o;
  const Range rows =
      partition(D::kHidden, static_cast<int>(gridDim.x), static_cast<int>(blockIdx.x));
  auto row = [&](int first, int t) -> const unsigned short* {
    const int r = rows.begin + first + t;
    return r < rows.end ? weights + static_cast<size_t>(r) * D::kQ : nullptr;
  };
  Tile tile{me};
  tile.load([&](int t) { return row(0, t); });

  if (!x.block_wait(s, Phase::kOProj, layer, p.position + step)) return false;
  block_o_proj_input(me, p, s, step);
  block_matvec<Tile::kTileRows>(
      s, tile, rows.size(), row, [&](const float* row_sums, int first, int count) {
        for (int t = me.lane; t < count; t += 32) {
          const int r = rows.begin + first + t;
          p.residual[r] = own_residual<S>(p, r) + add_segments<Tile>(0, row_sums, t);
        }
      });
  if (me.warp == 0) x.warp_arrive(s);
  return true;
}

}  // namespace mkbench::plain
