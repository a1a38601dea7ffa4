// Gate, up and SwiGLU: swiglu = silu(W_gate x) * (W_up x), x = RMSNorm(residual).
// Reads  residual (hidden) fp32; norm weight (hidden), W_gate, W_up (intermediate, hidden) bf16.
// Writes swiglu (intermediate) fp32.
// A block takes a contiguous range of pairs of a gate row and an up row, in tiles of which the first is
// loaded into registers before the wait.
#pragma once

#include "kernels/plain/exchange.cuh"
#include "kernels/plain/matvec.cuh"

namespace mkbench::plain {

template <typename S>
__device__ __forceinline__ float silu(float x) {
  return x / (1.0f + __expf(-x));
}

template <typename S, typename X>
__device__ __forceinline__ bool phase_gate_up(const LaunchParams& p, Shared<S>& s, const X& x,
                                              int step, int layer) {
  const Thread me = this_thread();
  using D = Dims<S>;
  using Tile = TileMatvec<S, 2 * D::kIntermediate, D::kHidden>;
  constexpr int kPairs = Tile::kTileRows / 2;
  static_assert(Tile::kTileRows % 2 == 0);
  const unsigned short* slab = p.layers + layer * D::kLayout.stride;
  const Range pairs =
      partition(D::kIntermediate, static_cast<int>(gridDim.x), static_cast<int>(blockIdx.x));
  auto row = [&](int first, int t) -> const unsigned short* {
    const int pair = pairs.begin + first + t % kPairs;
    const size_t matrix = t < kPairs ? D::kLayout.gate : D::kLayout.up;
    return pair < pairs.end ? slab + matrix + static_cast<size_t>(pair) * D::kHidden : nullptr;
  };
  Tile tile{me};
  tile.load([&](int t) { return row(0, t); });

  if (!x.block_wait(s, Phase::kGateUp, layer, p.position + step)) return false;
  const float scale = block_rms_norm(me, s, slab + D::kLayout.post_norm, p.eps,
                                     [&](int e) { return ptx::load_l2(p.residual + e); });
  block_matvec<kPairs>(s, tile, pairs.size(), row,
                       [&](const float* row_sums, int first, int count) {
                         for (int t = me.lane; t < count; t += 32) {
                           const float gate = add_segments<Tile>(0, row_sums, t) * scale;
                           const float up = add_segments<Tile>(0, row_sums, kPairs + t) * scale;
                           p.swiglu[pairs.begin + first + t] = silu<S>(gate) * up;
                         }
                       });
  if (me.warp == 0) x.warp_arrive(s);
  return true;
}

}  // namespace mkbench::plain
