// The statistics warp: norms of q and k, the score of the current position and the reference of the
// exponents, while the consumers compute scores; then the KV write (kv_write.cuh).
//   s_h = 1 / rms(q_h) / sqrt(head_dim) * log2(e), s_k = 1 / rms(k)
//   c_h = (q_h . k) s_h s_k             the current position's score in log2 units
//   R_h = max(c_h, |q_h| max|k| - 100)  the reference of the exponents
// for each layer, from the q and k of the group at the current position. With a fixed
// reference attention needs no running maximum.
// Reads   Shared::raw, rotated (written by the consumers), key_maxima.
// Writes  Shared::statistics, key_maxima; at the end of the launch key_maxima in device memory, by
//         member 0 of the group. What the KV write reads and writes: see kv_write.cuh.
// All 32 lanes share the dot products, which are one Gram matrix on the tensor cores.
#pragma once

#include "kernels/ring/roles/kv_write.cuh"
#include "kernels/timeline_record.cuh"

namespace mkbench::ring {

// log2(e), because exponentials are computed by ex2.
inline constexpr float kLog2E = 1.4426950408889634f;
// R may lie this far below the bound |q| max|k| on a score: 2^100 and sums of it fit fp32.
inline constexpr float kReferenceMargin = 100.0f;
// If the bound exceeds the current score by this much, exponentials relative to R might all
// underflow: the slow path is taken.
inline constexpr float kFastLimit = 200.0f;
// Margin on max|k|: keys in the cache are rounded to bf16, which lengthens them by at most 2^-9.
inline constexpr float kKeyMargin = 1.01f;

// Dot products of up to 8 vectors with each other, by tensor cores. Lane::row's vector begins at `at`
// of `plane`; rows 0-7 of A are the high planes, rows 8-15 the low planes, columns 0-7 of B the high
// planes. high[i] is the product of high planes at (row, 2j + i), low[i] the product of row's low
// plane and column's high plane.
struct Gram {
  float high[2], low[2];
};

template <typename L>
__device__ __forceinline__ Gram warp_gram(const SplitPlane<L>& plane, int at) {
  float f[4][4] = {};
#pragma unroll
  for (int c = 0; c < 4; ++c) {
    const uint4 h = *reinterpret_cast<const uint4*>(plane.high + at + 32 * c);
    const uint4 l = *reinterpret_cast<const uint4*>(plane.low + at + 32 * c);
    ptx::mma_k16(f[2 * (c & 1)], make_uint4(h.x, l.x, h.y, l.y), h.x, h.y);
    ptx::mma_k16(f[2 * (c & 1) + 1], make_uint4(h.z, l.z, h.w, l.w), h.z, h.w);
  }
  float sum[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) sum[i] = (f[0][i] + f[1][i]) + (f[2][i] + f[3][i]);
  return {{sum[0], sum[1]}, {sum[2], sum[3]}};
}

__device__ __forceinline__ float from_lane(float x, int lane) { return __shfl_sync(~0u, x, lane); }

struct KeyScale {
  float scale;  // 1 / rms(k)
  float norm;   // |k| after norm and RoPE
};

// Computes the layer's statistics and hands them to the consumers, from the products of the six
// vectors raw q0, q1, k and rotated q0, q1, k. The product (row, column) is in lane
// 4 * row + column / 2, entry column % 2.
template <typename L>
__device__ __forceinline__ KeyScale warp_statistics(const LaunchParams& p, Shared<L>& s, int layer,
                                                    int lane) {
  const int row = lane >> 2;
  const SplitPlane<L>& plane = row < 3 ? s.raw[layer & 1] : s.rotated[layer & 1];
  const Gram g =
      warp_gram<L>(plane, (row < 3 ? row : min(row - 3, 2)) * kHeadStride + 8 * (lane & 3));
  // (h + l)^2 = h^2 + 2 hl: l^2 is left out, because it is below 2^-16 of the whole.
  const float square0 = g.high[0] + 2 * g.low[0], square1 = g.high[1] + 2 * g.low[1];
  const float product1 = g.high[1] + g.low[1];
  constexpr float kPerDim = 1.0f / kHeadDim;
  const float to_log2 = kLog2E * 0.08838834764831845f;  // 1 / sqrt(head_dim)
  const float key = ptx::rsqrt_approx(from_lane(square0, 9) * kPerDim + p.eps);
  const float scale0 = ptx::rsqrt_approx(from_lane(square0, 0) * kPerDim + p.eps) * to_log2;
  const float scale1 = ptx::rsqrt_approx(from_lane(square1, 4) * kPerDim + p.eps) * to_log2;
  const float current0 = (from_lane(product1, 14) + from_lane(g.low[1], 21)) * key * scale0;
  const float current1 = (from_lane(product1, 18) + from_lane(g.low[0], 22)) * key * scale1;
  const float longest = s.key_maxima[layer] * kKeyMargin;
  const float bound0 = ptx::sqrt_approx(from_lane(square1, 13)) * scale0 * longest;
  const float bound1 = ptx::sqrt_approx(from_lane(square0, 18)) * scale1 * longest;
  const float reference0 = fmaxf(current0, bound0 - kReferenceMargin);
  const float reference1 = fmaxf(current1, bound1 - kReferenceMargin);
  const bool slow = bound0 - current0 >= kFastLimit || bound1 - current1 >= kFastLimit;
  if (lane == 0) {
    *reinterpret_cast<float4*>(&s.statistics[0].scale0) =
        make_float4(scale0, reference0, scale1, reference1);
    *reinterpret_cast<float4*>(&s.statistics[0].current0) =
        make_float4(current0 - reference0, current1 - reference1,
                    __int_as_float(slow || p.slow_attention != 0 ? 1 : 0), 0.0f);
  }
  ptx::named_arrive<kOneMore>(kStatistics);
  return {key, ptx::sqrt_approx(from_lane(square1, 22)) * key};
}

// Counterpart of warp_statistics() for four heads: one Gram matrix of the raw q0 .. q3 and k, one of the
// rotated vectors; lane l computes head l % 4.
template <typename L>
__device__ __forceinline__ KeyScale warp_four_statistics(const LaunchParams& p, Shared<L>& s,
                                                         int layer, int lane) {
  const int at = min(lane >> 2, kKey<L>) * kHeadStride + 8 * (lane & 3);
  const Gram raw = warp_gram<L>(s.raw[layer & 1], at);
  const Gram rotated = warp_gram<L>(s.rotated[layer & 1], at);
  const int head = lane & 3, odd = head & 1;
  constexpr int kKeyLane = 4 * kKey<L> + kKey<L> / 2;  // the lane whose entry 0 is |k|^2
  const int own_lane = 4 * head + head / 2;  // the lane whose entry `odd` is the head's square
  const auto square = [](const Gram& g, int i) { return g.high[i] + 2 * g.low[i]; };
  const auto of_head = [&](float even_value, float odd_value, int from) {
    const float a = from_lane(even_value, from), b = from_lane(odd_value, from);
    return odd != 0 ? b : a;
  };
  constexpr float kPerDim = 1.0f / kHeadDim;
  const float to_log2 = kLog2E * 0.08838834764831845f;  // 1 / sqrt(head_dim)
  const float key = ptx::rsqrt_approx(from_lane(square(raw, 0), kKeyLane) * kPerDim + p.eps);
  const float raw_square = of_head(square(raw, 0), square(raw, 1), own_lane);
  const float scale = ptx::rsqrt_approx(raw_square * kPerDim + p.eps) * to_log2;
  const float product = from_lane(rotated.high[0] + rotated.low[0], 4 * head + kKey<L> / 2) +
                        of_head(rotated.low[0], rotated.low[1], 4 * kKey<L> + head / 2);
  const float current = product * key * scale;
  const float length = ptx::sqrt_approx(of_head(square(rotated, 0), square(rotated, 1), own_lane));
  const float bound = length * scale * (s.key_maxima[layer] * kKeyMargin);
  const float reference = fmaxf(current, bound - kReferenceMargin);
  const bool slow = __any_sync(~0u, bound - current >= kFastLimit) || p.slow_attention != 0;
  if (lane < L::kHeads) {
    Statistics& st = s.statistics[head / 2];
    *reinterpret_cast<float2*>(odd != 0 ? &st.scale1 : &st.scale0) = make_float2(scale, reference);
    (odd != 0 ? st.current1 : st.current0) = current - reference;
    if (odd == 0) st.slow = slow ? 1 : 0;
  }
  __syncwarp();
  ptx::named_arrive<kOneMore>(kStatistics);
  return {key, ptx::sqrt_approx(from_lane(square(rotated, 0), kKeyLane)) * key};
}

template <typename L, RingAblation kAblation>
__device__ __forceinline__ void run_statistics(const LaunchParams& p, Shared<L>& s,
                                               const Block& block) {
  int lane = static_cast<int>(threadIdx.x) & 31;
  asm volatile("" : "+r"(lane));
  TrackWriter<kAblation == RingAblation::kRecorded> track;
  const int number = static_cast<int>(blockIdx.x) * kTracks + kStatisticsTrack;
  track.begin(p.timeline, number, lane == 0);
#pragma unroll 1
  for (int step = 0; step < p.steps; ++step) {
    const int position = p.position + step;
#pragma unroll 1
    for (int layer = 0; layer < p.layers; ++layer) {
      // Values that the KV write computes from `lane` must not be kept across layers: CUDA 12 would
      // spill them. With four heads CUDA 13 would too, unless `lane` itself is read anew.
      if constexpr (L::kHeads > 2) lane = static_cast<int>(threadIdx.x) & 31;
      if constexpr (__CUDACC_VER_MAJOR__ < 13 || L::kHeads > 2) asm volatile("" : "+r"(lane));
      track.enter(SpanKind::kHandOff, Phase::kAttention, layer, step);
      ptx::named_sync<kOneMore>(kHeadVectors);
      track.mark(SpanKind::kBody);
      KeyScale key;
      if constexpr (L::kHeads == 2) {
        key = warp_statistics(p, s, layer, lane);
      } else {
        key = warp_four_statistics(p, s, layer, lane);
      }
      // Only this warp reads key_maxima again, in the next step.
      if (lane == 0) s.key_maxima[layer] = fmaxf(s.key_maxima[layer], key.norm);
      if (block.member() == position % kMembers && kAblation != RingAblation::kNoLoads) {
        char* head = p.kv + static_cast<size_t>(layer * kGroups + block.group()) *
                                kv_head_bytes(p.max_context);
        warp_write_kv_row(p, s.rotated[layer & 1], head, position, key.scale, lane);
      }
      __syncwarp();
    }
    track.mark(SpanKind::kExchange);
    warp_pass_kv_rows<L, kAblation>(p, s, block, step, lane);
    track.mark(SpanKind::kHandOff);
    ptx::named_sync<kTwoRoles>(kTokenSeen);
    if (s.token < 0) break;
  }
  track.end(number);
  if (block.member() == 0) {
    for (int layer = lane; layer < p.layers; layer += 32) {
      p.key_maxima[layer * kGroups + block.group()] = s.key_maxima[layer];
    }
  }
}

}  // namespace mkbench::ring
