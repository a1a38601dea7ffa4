// QKV: qkv = W_qkv RMSNorm(residual) + bias, raw: attention applies QK-norm and RoPE. In layer 0 the phase
//        also selects the token and embeds it: residual = E[token].
// Reads  residual (hidden) fp32 (layer 0: embedding row (hidden) bf16); norm weight (hidden), W_qkv
//        (qkv_width, hidden), bias (qkv_width), if the model has one, bf16.
// Writes qkv (qkv_width) fp32; in layer 0 residual (hidden) fp32.
// A block takes a contiguous range of rows, in tiles of which the first is loaded into registers before
// the wait. A block writes the residual of the rows to which it will add in O-projection and down.
#pragma once

#include "kernels/plain/exchange.cuh"
#include "kernels/plain/matvec.cuh"
#include "kernels/plain/phases/token.cuh"

namespace mkbench::plain {

template <typename S>
__device__ __forceinline__ void warp_embed(Thread me, const LaunchParams& p, int token) {
  const Range rows =
      partition(Dims<S>::kHidden, static_cast<int>(gridDim.x), static_cast<int>(blockIdx.x));
  const unsigned short* row = p.embed + static_cast<size_t>(token) * Dims<S>::kHidden;
  for (int r = rows.begin + me.lane; r < rows.end; r += 32) p.residual[r] = widen(__ldg(row + r));
}

// Leaves the phase's vector in Shared::activations and returns the factor of its products; -1 when a logit was NaN.
// That ends plain's launch, so that the outputs from here on stay -1; in a graph later phases and steps run on old
// values, and the host drops their ids.
template <typename S>
__device__ __forceinline__ float block_qkv_input(Thread me, const LaunchParams& p, Shared<S>& s,
                                                 int step, int layer) {
  using D = Dims<S>;
  const unsigned short* norm = p.layers + layer * D::kLayout.stride + D::kLayout.input_norm;
  if (layer > 0)
    return block_rms_norm(me, s, norm, p.eps, [&](int e) { return ptx::load_l2(p.residual + e); });
  const int token = block_select_token(me, p, s, step);
  if (token < 0) return -1;
  if (me.warp == 0) warp_embed<S>(me, p, token);
  const unsigned short* embedded = p.embed + static_cast<size_t>(token) * D::kHidden;
  return block_rms_norm(me, s, norm, p.eps, [&](int e) { return widen(__ldg(embedded + e)); });
}

template <typename S>
__device__ __forceinline__ void store_qkv(const LaunchParams& p, int layer, int row, float sum) {
  using D = Dims<S>;
  if constexpr (D::kShape.qkv_bias)
    sum += widen(__ldg(p.layers + layer * D::kLayout.stride + D::kLayout.bias + row));
  p.qkv[row] = sum;
}

template <typename S, typename X>
__device__ __forceinline__ bool phase_qkv(const LaunchParams& p, Shared<S>& s, const X& x, int step,
                                          int layer) {
  const Thread me = this_thread();
  using D = Dims<S>;
  using Tile = TileMatvec<S, D::kQkv, D::kHidden>;
  const unsigned short* weights = p.layers + layer * D::kLayout.stride + D::kLayout.qkv;
  const Range rows = partition(D::kQkv, static_cast<int>(gridDim.x), static_cast<int>(blockIdx.x));
  auto row = [&](int first, int t) -> const unsigned short* {
    const int r = rows.begin + first + t;
    return r < rows.end ? weights + static_cast<size_t>(r) * D::kHidden : nullptr;
  };
  Tile tile{me};
  tile.load([&](int t) { return row(0, t); });

  if (!x.block_wait(s, Phase::kQkv, layer, p.position + step)) return false;
  const float scale = block_qkv_input(me, p, s, step, layer);
  if (scale < 0) return false;
  block_matvec<Tile::kTileRows>(s, tile, rows.size(), row,
                                [&](const float* row_sums, int first, int count) {
                                  for (int t = me.lane; t < count; t += 32) {
                                    store_qkv<S>(p, layer, rows.begin + first + t,
                                                 add_segments<Tile>(0, row_sums, t) * scale);
                                  }
                                });
  if (me.warp == 0) x.warp_arrive(s);
  return true;
}

}  // namespace mkbench::plain
