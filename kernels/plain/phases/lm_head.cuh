// LM head: logits = W_head RMSNorm(residual), and the best row of each block's range.
// Reads  residual (hidden) fp32; final norm (hidden), W_head (vocab, hidden) bf16.
// Writes best (gridDim.x): {ordered logit, inverted row}; logits (vocab) fp32 when asked for.
// A block takes a contiguous range of rows, a warp two of every 32 rows: it computes two while the
// next two are being loaded.
#pragma once

#include "kernels/plain/exchange.cuh"
#include "kernels/plain/matvec.cuh"
#include "kernels/plain/phases/token.cuh"

namespace mkbench::plain {

// Two rows of W_head in registers, kWarps rows apart. A chunk of the next two rows is requested as
// soon as the chunk that it replaces has been multiplied. A warp thus keeps 4 KB in flight with
// half the registers that two buffers would take.
template <typename S>
struct HeadRows {
  using D = Dims<S>;
  static constexpr int kChunks = ceil_div(D::kHidden, 256);
  Thread me;
  int end;  // one past the block's last row
  uint4 weights[2][kChunks];

  __device__ __forceinline__ bool active(int c) const {
    return D::kHidden % 256 == 0 || c * 256 + me.lane * 8 < D::kHidden;
  }

  __device__ __forceinline__ void load(const unsigned short* head, int row, int c) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int r = row + i * kWarps;
      weights[i][c] = make_uint4(0, 0, 0, 0);
      if (r < end && active(c)) {
        weights[i][c] =
            ptx::load_weights(head + static_cast<size_t>(r) * D::kHidden + c * 256 + me.lane * 8);
      }
    }
  }

  // Logits of the two rows held, equal in all lanes. Rows `next` and `next` + kWarps replace the
  // two.
  __device__ __forceinline__ float2 logits_then_load(const unsigned short* head,
                                                     const float4* activations, float scale,
                                                     int next) {
    using Tile = TileMatvec<D::kHidden, 1, kWarps>;
    // Hidden from the compiler, so that it leaves the activations in shared memory: 32 registers
    // less.
    const int lane = this_thread().lane;
    float2 sum = make_float2(0, 0);
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      if (active(c)) {
        const int octet = c * 32 + lane;
        const float4 a = activations[octet], b = activations[octet + D::kHidden / 8];
        sum.x = Tile::dot_octet(weights[0][c], a, b, sum.x);
        sum.y = Tile::dot_octet(weights[1][c], a, b, sum.y);
      }
      load(head, next, c);
    }
    return make_float2(warp_sum(sum.x) * scale, warp_sum(sum.y) * scale);
  }
};

template <typename S>
__device__ __forceinline__ Range block_head_rows(const LaunchParams& p) {
  return partition(p.vocab, static_cast<int>(gridDim.x), static_cast<int>(blockIdx.x));
}

// False when the launch must end, as in all phases.
template <typename S>
__device__ __forceinline__ bool phase_lm_head(const LaunchParams& p, Shared<S>& s,
                                              const GridExchange& x, int step) {
  const Thread me = this_thread();
  const Range rows = block_head_rows<S>(p);
  const int first = rows.begin + me.warp;
  HeadRows<S> held{me, rows.end};
#pragma unroll
  for (int c = 0; c < HeadRows<S>::kChunks; ++c) held.load(p.head, first, c);

  if (!x.block_wait(s, Phase::kLmHead, p.layer_count, p.position + step)) return false;
  const float scale = block_rms_norm(me, s, p.final_norm, p.eps,
                                     [&](int e) { return ptx::load_l2(p.residual + e); });
  float* logits = p.logits == nullptr
                      ? nullptr
                      : p.logits + static_cast<size_t>(step - p.first_output) * p.vocab;
  unsigned long long best = 0;
  auto keep = [&](float logit, int row) {
    if (row >= rows.end) return;
    best = max_key(best, key_of<S>(logit, row));
    if (logits != nullptr && me.lane == 0) logits[row] = logit;
  };
#pragma unroll 1
  for (int row = first; row < rows.end; row += 2 * kWarps) {
    const float2 pair = held.logits_then_load(p.head, s.activations, scale, row + 2 * kWarps);
    keep(pair.x, row);
    keep(pair.y, row + kWarps);
  }
  if (me.lane == 0) s.best[me.warp] = best;
  __syncthreads();
  if (me.warp == 0) {
    best = warp_max_key(me.lane < kWarps ? s.best[me.lane] : 0);
    if (me.lane == 0) p.best[blockIdx.x] = best;
    x.warp_arrive(s);
  }
  return true;
}

}  // namespace mkbench::plain
