// Down: residual += W_down swiglu.
// Reads  swiglu (intermediate), residual (hidden) fp32; W_down (hidden, intermediate) bf16.
// Writes residual (hidden) fp32; in the last step also hidden (layers, hidden) fp32 when asked for.
// A block takes a contiguous range of rows, and reads and writes the residual of these rows only.
#pragma once

#include "kernels/plain/exchange.cuh"
#include "kernels/plain/matvec.cuh"

namespace mkbench::plain {

// Leaves the phase's vector in Shared::activations.
template <typename S>
__device__ __forceinline__ void block_down_input(Thread me, const LaunchParams& p, Shared<S>& s) {
  constexpr int kSize = Dims<S>::kIntermediate;
  // 4 neighbouring elements stay neighbours in activation_index().
  const float4* swiglu = reinterpret_cast<const float4*>(p.swiglu);
#pragma unroll 2
  for (int i = me.index; i < kSize / 4; i += kThreads<S>) {
    s.activations[activation_index(4 * i, kSize) / 4] = ptx::load_l2(swiglu + i);
  }
  __syncthreads();
}

// Whether the step's hidden states were asked for.
__device__ __forceinline__ bool keeps_hidden(const LaunchParams& p, int step) {
  return p.hidden != nullptr && step + 1 == p.steps;
}

template <typename S>
__device__ __forceinline__ void store_down(const LaunchParams& p, bool keep_hidden, int layer,
                                           int row, float sum) {
  p.residual[row] = sum;
  if (keep_hidden) p.hidden[static_cast<size_t>(layer) * Dims<S>::kHidden + row] = sum;
}

template <typename S, typename X>
__device__ __forceinline__ bool phase_down(const LaunchParams& p, Shared<S>& s, const X& x,
                                           int step, int layer) {
  const Thread me = this_thread();
  using D = Dims<S>;
  using Tile = TileMatvec<S, D::kHidden, D::kIntermediate>;
  const unsigned short* slab = p.layers + layer * D::kLayout.stride;
  const unsigned short* weights = slab + D::kLayout.down;
  const Range rows =
      partition(D::kHidden, static_cast<int>(gridDim.x), static_cast<int>(blockIdx.x));
  auto row = [&](int first, int t) -> const unsigned short* {
    const int r = rows.begin + first + t;
    return r < rows.end ? weights + static_cast<size_t>(r) * D::kIntermediate : nullptr;
  };
  Tile tile{me};
  tile.load([&](int t) { return row(0, t); });

  if (!x.block_wait(s, Phase::kDown, layer, p.position + step)) return false;
  block_down_input(me, p, s);
  const bool keep_hidden = keeps_hidden(p, step);
  block_matvec<Tile::kTileRows>(
      s, tile, rows.size(), row, [&](const float* row_sums, int first, int count) {
        for (int t = me.lane; t < count; t += 32) {
          const int r = rows.begin + first + t;
          store_down<S>(p, keep_hidden, layer, r,
                        add_segments<Tile>(own_residual<S>(p, r), row_sums, t));
        }
      });
  if (me.warp == 0) x.warp_arrive(s);
  return true;
}

}  // namespace mkbench::plain
