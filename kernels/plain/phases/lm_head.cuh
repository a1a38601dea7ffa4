// LM head: logits = W_head RMSNorm(residual), and the best row of each block's range.
// Reads  residual (hidden) fp32; final norm (hidden), W_head (vocab, hidden) bf16.
// Writes best (gridDim.x): {ordered logit, inverted row}; logits (vocab) and normed (hidden), which is
//        RMSNorm(residual), fp32 when asked for.
// A block takes a contiguous range of rows, a warp every kWarps-th of them: it computes one or two rows
// while the next ones are being loaded.
#pragma once

#include "kernels/plain/exchange.cuh"
#include "kernels/plain/matvec.cuh"
#include "kernels/plain/phases/token.cuh"

namespace mkbench::plain {

// Rows of W_head in registers, kWarps rows apart: two rows if they fit, else one row or the part of a
// row that fits. As soon as a chunk has been multiplied, the chunk kHeld later is requested, in the same
// rows or the next ones. So a warp keeps 4 to 6 KB in flight with half the registers of two buffers.
template <typename S>
struct HeadRows {
  using D = Dims<S>;
  static constexpr int kChunks = ceil_div(D::kHidden, kChunk);
  static constexpr int kRows = 2 * kChunks <= kMostChunks ? 2 : 1;
  static constexpr int kParts = ceil_div(kChunks, kMostChunks);  // parts of a row
  static constexpr int kHeld = kChunks / kParts;                 // chunks of a part
  static_assert(kChunks % kParts == 0, "a chunk's register is the same in every row");
  Thread me;
  int end;  // one past the block's last row
  uint4 weights[kRows][kHeld];

  __device__ __forceinline__ bool active(int c) const {
    return D::kHidden % kChunk == 0 || c * kChunk + me.lane * 8 < D::kHidden;
  }

  __device__ __forceinline__ void load(const unsigned short* head, int row, int c) {
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const int r = row + i * kWarps<S>;
      uint4& held = weights[i][c % kHeld];
      held = make_uint4(0, 0, 0, 0);
      if (r < end && active(c)) {
        held = ptx::load_weights(head + static_cast<size_t>(r) * D::kHidden + c * kChunk +
                                 me.lane * 8);
      }
    }
  }

  // Computes the logits of the rows from `row` on, equal in all lanes, and loads from `next` on.
  __device__ __forceinline__ void logits_then_load(const unsigned short* head,
                                                   const float4* activations, float scale, int row,
                                                   int next, float (&logits)[kRows]) {
    // Hidden from the compiler, so that it leaves the activations in shared memory: 32 registers
    // less.
    const int lane = this_thread().lane;
    float sums[kRows] = {};
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      if (active(c)) {
        const int octet = c * 32 + lane;
        const float4 a = activations[octet], b = activations[octet + D::kHidden / 8];
#pragma unroll
        for (int i = 0; i < kRows; ++i) sums[i] = dot_octet(weights[i][c % kHeld], a, b, sums[i]);
      }
      load(head, c + kHeld < kChunks ? row : next, (c + kHeld) % kChunks);
    }
#pragma unroll
    for (int i = 0; i < kRows; ++i) logits[i] = warp_sum(sums[i]) * scale;
  }
};

// Stores the block's range of RMSNorm(residual), which is Shared::activations * scale.
template <typename S>
__device__ __forceinline__ void block_store_normed(Thread me, const LaunchParams& p,
                                                   const Shared<S>& s, float scale, int step) {
  constexpr int kHidden = Dims<S>::kHidden;
  const float* activations = reinterpret_cast<const float*>(s.activations);
  float* normed = p.normed + static_cast<size_t>(step - p.first_output) * kHidden;
  const Range own = partition(kHidden, static_cast<int>(gridDim.x), static_cast<int>(blockIdx.x));
  for (int e = own.begin + me.index; e < own.end; e += kThreads<S>)
    normed[e] = activations[activation_index(e, kHidden)] * scale;
}

template <typename S>
__device__ __forceinline__ Range block_head_rows(const LaunchParams& p) {
  return partition(p.vocab, static_cast<int>(gridDim.x), static_cast<int>(blockIdx.x));
}

// False when the launch must end, as in all phases.
template <typename S, typename X>
__device__ __forceinline__ bool phase_lm_head(const LaunchParams& p, Shared<S>& s, const X& x,
                                              int step) {
  const Thread me = this_thread();
  const Range rows = block_head_rows<S>(p);
  const int first = rows.begin + me.warp;
  HeadRows<S> held{me, rows.end};
#pragma unroll
  for (int c = 0; c < HeadRows<S>::kHeld; ++c) held.load(p.head, first, c);

  if (!x.block_wait(s, Phase::kLmHead, p.layer_count, p.position + step)) return false;
  const float scale = block_rms_norm(me, s, p.final_norm, p.eps,
                                     [&](int e) { return ptx::load_l2(p.residual + e); });
  if (p.normed != nullptr) block_store_normed(me, p, s, scale, step);
  float* logits = p.logits == nullptr
                      ? nullptr
                      : p.logits + static_cast<size_t>(step - p.first_output) * p.vocab;
  unsigned long long best = 0;
  auto keep = [&](float logit, int row) {
    if (row >= rows.end) return;
    best = max_key(best, key_of<S>(logit, row));
    if (logits != nullptr && me.lane == 0) logits[row] = logit;
  };
  constexpr int kRows = HeadRows<S>::kRows;
#pragma unroll 1
  for (int row = first; row < rows.end; row += kRows * kWarps<S>) {
    float found[kRows];
    held.logits_then_load(p.head, s.activations, scale, row, row + kRows * kWarps<S>, found);
#pragma unroll
    for (int i = 0; i < kRows; ++i) keep(found[i], row + i * kWarps<S>);
  }
  if (me.lane == 0) s.best[me.warp] = best;
  __syncthreads();
  if (me.warp == 0) {
    best = warp_max_key(me.lane < kWarps<S> ? s.best[me.lane] : 0);
    if (me.lane == 0) p.best[blockIdx.x] = best;
    x.warp_arrive(s);
  }
  return true;
}

}  // namespace mkbench::plain
