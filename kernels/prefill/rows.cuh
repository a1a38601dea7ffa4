// Prefill kernels that work on single rows: embedding, RMSNorm, and QK-norm, RoPE and KV write of a
// row's q, k and v. In embed_kernel a block takes a row, in normalize_kernel a warp takes a row, in
// heads_kernel a warp takes a head of a row.
#pragma once

#include "kernels/prefill/kv_view.cuh"

namespace mkbench::prefill {

inline constexpr int kRowWarps = 8;   // per block of heads_kernel
inline constexpr int kNormWarps = 4;  // per block of normalize_kernel: 128 blocks for 512 rows

// residual (rows, hidden) fp32 = embed[ids].
__global__ void embed_kernel(const unsigned short* embed, const int* ids, int hidden,
                             float* residual) {
  const int row = static_cast<int>(blockIdx.x);
  const unsigned* from =
      reinterpret_cast<const unsigned*>(embed + static_cast<size_t>(ids[row]) * hidden);
  float2* to = reinterpret_cast<float2*>(residual + static_cast<size_t>(row) * hidden);
  for (int i = static_cast<int>(threadIdx.x); i < hidden / 2; i += static_cast<int>(blockDim.x)) {
    to[i] = make_float2(low_of(from[i]), high_of(from[i]));
  }
}

// out (rows, hidden) = RMSNorm(residual) * weight, as two bf16 planes. hidden % 64 == 0.
__global__ void normalize_kernel(const float* residual, const unsigned short* weight, float eps,
                                 int rows, int hidden, SplitRows out) {
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int row = static_cast<int>(blockIdx.x) * kNormWarps + warp;
  if (row >= rows) return;
  const size_t begin = static_cast<size_t>(row) * hidden;
  const float2* from = reinterpret_cast<const float2*>(residual + begin);
  const unsigned* weights = reinterpret_cast<const unsigned*>(weight);
  float squares = 0;
#pragma unroll 4
  for (int i = lane; i < hidden / 2; i += 32) {
    const float2 x = from[i];
    squares = fmaf(x.x, x.x, fmaf(x.y, x.y, squares));
  }
  const float scale = rsqrtf(warp_sum(squares) / static_cast<float>(hidden) + eps);
#pragma unroll 4
  for (int i = lane; i < hidden / 2; i += 32) {
    const float2 x = from[i];
    const unsigned w = weights[i];
    store_split(out, begin + 2 * static_cast<size_t>(i), x.x * scale * low_of(w),
                x.y * scale * high_of(w));
  }
}

// A lane's part of one head of one row: lane i < kHeadDim / 4 has elements 2i and 2i + 1 and their RoPE
// partners, which lie kHeadDim / 2 further; lanes beyond have zeros.
struct HeadPart {
  float2 near, far;
};

template <int kHeadDim>
__device__ __forceinline__ HeadPart load_part(const float* head, int lane) {
  if (lane >= kHeadDim / 4) return {};
  const float2* at = reinterpret_cast<const float2*>(head) + lane;
  return {at[0], at[kHeadDim / 4]};
}

template <int kHeadDim>
__device__ __forceinline__ HeadPart add_bias(HeadPart x, const unsigned short* bias, int lane) {
  if (lane >= kHeadDim / 4) return x;
  const unsigned* pairs = reinterpret_cast<const unsigned*>(bias) + lane;
  const unsigned near = pairs[0], far = pairs[kHeadDim / 4];
  return {make_float2(x.near.x + low_of(near), x.near.y + high_of(near)),
          make_float2(x.far.x + low_of(far), x.far.y + high_of(far))};
}

// Multiply-adds are written as fmaf() here and in attention, so that every instance of a kernel
// gives the same bits.
__device__ __forceinline__ float part_squares(HeadPart x) {
  return fmaf(x.near.x, x.near.x,
              fmaf(x.near.y, x.near.y, fmaf(x.far.x, x.far.x, x.far.y * x.far.y)));
}

// QK-norm over the head, unless `norm` is null, then RoPE with half-split pairs (i, i + kHeadDim / 2).
template <int kHeadDim>
__device__ __forceinline__ HeadPart norm_and_rotate(HeadPart x, const unsigned short* norm,
                                                    const RopePair* rope, float eps, int lane) {
  const int pair = lane % (kHeadDim / 4);
  if (norm != nullptr) {
    const float squares = warp_sum(part_squares(x));
    const float scale = rsqrtf(squares * (1.0f / kHeadDim) + eps);
    const unsigned* weights = reinterpret_cast<const unsigned*>(norm) + pair;
    const unsigned near = weights[0], far = weights[kHeadDim / 4];
    x = {make_float2(x.near.x * scale * low_of(near), x.near.y * scale * high_of(near)),
         make_float2(x.far.x * scale * low_of(far), x.far.y * scale * high_of(far))};
  }
  const float a0 = x.near.x, a1 = x.near.y, b0 = x.far.x, b1 = x.far.y;
  const float4 turn = reinterpret_cast<const float4*>(rope)[pair];  // cos, sin, cos, sin
  return {make_float2(fmaf(a0, turn.x, -b0 * turn.y), fmaf(a1, turn.z, -b1 * turn.w)),
          make_float2(fmaf(b0, turn.x, a0 * turn.y), fmaf(b1, turn.z, a1 * turn.w))};
}

// Raises the largest |k| that is kept beside the ring's cache. Lengths are not negative, so their
// bits are ordered as integers, with NaN above all others.
__device__ __forceinline__ void raise_key_maximum(const PlainKv&, int, int, float) {}
__device__ __forceinline__ void raise_key_maximum(const RingKv& kv, int layer, int head,
                                                  float length) {
  if (kv.key_maxima == nullptr) return;
  atomicMax(reinterpret_cast<unsigned*>(kv.key_maxima) + layer * kv.kv_heads + head,
            __float_as_uint(length) & 0x7fffffffu);
}

// Adds the biases of q, k and v, if there are any; then q = RoPE(QK-norm(q)) log2(e) / sqrt(head_dim), as
// two bf16 planes; k = bf16(RoPE(QK-norm(k))) and v = bf16(v) into the cache. A warp takes one head of one
// row.
template <class Kv>
__global__ void heads_kernel(HeadsInput in, Kv kv) {
  constexpr int kHeadDim = Kv::kHeadDim;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int row_heads = in.heads + 2 * in.kv_heads;
  const int item = static_cast<int>(blockIdx.x) * kRowWarps + warp;
  const int row = item / row_heads, slot = item % row_heads;
  if (row >= in.rows) return;
  HeadPart x = load_part<kHeadDim>(in.qkv + static_cast<size_t>(item) * kHeadDim, lane);
  if (in.bias != nullptr) x = add_bias<kHeadDim>(x, in.bias + slot * kHeadDim, lane);
  const bool holds = lane < kHeadDim / 4;
  const RopePair* rope = in.rope + static_cast<size_t>(row) * (kHeadDim / 2);
  if (slot < in.heads) {
    x = norm_and_rotate<kHeadDim>(x, in.q_norm, rope, in.eps, lane);
    if (!holds) return;
    const float scale = rsqrtf(static_cast<float>(kHeadDim)) * 1.4426950408889634f;
    const size_t at =
        static_cast<size_t>(row * in.heads + slot) * kHeadDim + 2 * static_cast<size_t>(lane);
    store_split(in.query, at, x.near.x * scale, x.near.y * scale);
    store_split(in.query, at + kHeadDim / 2, x.far.x * scale, x.far.y * scale);
    return;
  }
  const int position = in.position + row;
  const bool is_key = slot < in.heads + in.kv_heads;
  const int head = slot - in.heads - (is_key ? 0 : in.kv_heads);
  if (is_key) x = norm_and_rotate<kHeadDim>(x, in.k_norm, rope, in.eps, lane);
  const unsigned near = ptx::bf16_pair(x.near.x, x.near.y);
  const unsigned far = ptx::bf16_pair(x.far.x, x.far.y);
  constexpr KvKind kKey = KvKind::kKey, kValue = KvKind::kValue;
  if (is_key) {
    if (holds) {
      store_pair<kKey>(kv, in.layer, head, position, 2 * lane, near);
      store_pair<kKey>(kv, in.layer, head, position, 2 * lane + kHeadDim / 2, far);
    }
    const HeadPart rounded = {make_float2(low_of(near), high_of(near)),
                              make_float2(low_of(far), high_of(far))};
    const float squares = warp_sum(part_squares(rounded));
    if (lane == 0) raise_key_maximum(kv, in.layer, head, sqrtf(squares));
  } else if (holds) {
    store_pair<kValue>(kv, in.layer, head, position, 2 * lane, near);
    store_pair<kValue>(kv, in.layer, head, position, 2 * lane + kHeadDim / 2, far);
  }
}

}  // namespace mkbench::prefill
