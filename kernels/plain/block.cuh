// A block's shape, its shared memory, and the few operations that all phases use.
#pragma once

#include "kernels/partition.h"
#include "kernels/plain/params.h"
#include "kernels/ptx.cuh"
#include "kernels/timeline_record.cuh"

namespace mkbench::plain {

// Warps of a block of instance S. 512 threads leave 128 registers each, which hold a phase's weights.
template <typename S>
inline constexpr int kWarps = 16;
template <typename S>
inline constexpr int kThreads = 32 * kWarps<S>;

// The maximum of an empty set of attention scores: finite, so that differences of maxima stay
// finite.
inline constexpr float kNoScore = -1e30f;

MKBENCH_HD constexpr int ceil_div(int a, int b) { return (a + b - 1) / b; }
constexpr int max_of(int a, int b) { return a > b ? a : b; }

// S names an instance of the kernel (kernel.cu) and carries its shape. Everything that depends on
// the instance takes S, so that instances/faults.cu can specialise single functions for its own
// instance.
template <typename S>
struct Dims {
  static constexpr ModelShape kShape = S::kShape;
  static constexpr int kHidden = kShape.hidden;
  static constexpr int kIntermediate = kShape.intermediate;
  static constexpr int kHeads = kShape.heads;
  static constexpr int kKvHeads = kShape.kv_heads;
  static constexpr int kHeadDim = kShape.head_dim;
  static constexpr int kGroup = kHeads / kKvHeads;
  // Attention takes a GQA group in parts: the sums of more than 5 query heads would spill registers. The last
  // part may have fewer heads.
  static constexpr int kParts = ceil_div(kGroup, 5), kPartHeads = ceil_div(kGroup, kParts);
  static constexpr int kQ = kHeads * kHeadDim;
  static constexpr int kKv = kKvHeads * kHeadDim;
  static constexpr int kQkv = kQ + 2 * kKv;
  static constexpr int kActivations = max_of(max_of(kHidden, kIntermediate), kQ);
  static constexpr LayerLayout kLayout = layer_layout(kShape);
  // Attention: lanes that share a KV row, 8 elements each; and lanes that share a head of q, k or v,
  // 4 elements each.
  static constexpr int kRowLanes = kHeadDim / 8, kHeadLanes = kHeadDim / 4;
  static_assert(kHeadDim == 64 || kHeadDim == 128,
                "a warp holds whole KV rows, and a head at most");
  static_assert(kHidden % 8 == 0 && kIntermediate % 8 == 0, "rows are read 16 bytes at a time");
  static_assert(kHeads % kKvHeads == 0 && kPartHeads + 2 <= kWarps<S>,
                "attention: one warp for each head of q, k, v");
};

// The most dot products in a tile: one for each segment of a row (TileMatvec).
inline constexpr int kMostRowSums = 96;

// Whether a block runs on the multiprocessor where it ran in the phase before, whose L1 then holds its stores.
template <typename S>
inline constexpr bool kStays = true;

// Splits of the context whose numerators a warp loads at once in O-projection.
template <typename S>
inline constexpr int kCombinedAtOnce = 4;

// True for the instances that record a timeline (instances/recorded.cu). The cursor of thread 0's track is
// in shared memory, where it costs the other threads no register.
template <typename S>
inline constexpr bool kRecords = false;

template <bool kRecords>
struct TrackCursor {};
template <>
struct TrackCursor<true> {
  TrackWriter<true> track;
};

// What attention alone keeps in shared memory.
template <typename S>
struct AttentionShared {
  using D = Dims<S>;
  float4 numerators[kWarps<S>][D::kPartHeads][D::kHeadDim / 4];  // one partial a warp
  float maxima[kWarps<S>][D::kPartHeads], sums[kWarps<S>][D::kPartHeads];
  float4 query[D::kPartHeads][D::kHeadDim / 4];          // after QK-norm, RoPE and scale
  uint4 new_k[D::kHeadDim / 8], new_v[D::kHeadDim / 8];  // the current position's row, bf16
};

// Shared memory of a block, granted at launch: 69 KiB for Qwen3-14B. The phases use it one after the
// other, with a block barrier between them (GridExchange::block_wait).
template <typename S>
struct Shared : TrackCursor<kRecords<S>> {
  using D = Dims<S>;
  union {
    // The fp32 vector of the running phase, in the order of activation_index().
    float4 activations[D::kActivations / 4];
    AttentionShared<S> attention;
  };
  // Dot products of a tile's rows. Tiles alternate between the two halves, so that warp 0 reads one
  // while the other warps fill the other.
  float row_sums[2][kMostRowSums];
  float square_sums[kWarps<S>];  // RMSNorm: one sum a warp
  unsigned long long best[kWarps<S>];
  int token;
  int wait_ok;
  unsigned expected;  // arrivals to wait for, used by thread 0 only (GridExchange)
};

// A thread's place in its block. Each phase calls this_thread() anew, whose empty asm hides the
// index from the compiler. Otherwise the compiler computes every phase's addresses ahead of the
// layer loop and spills registers that hold a phase's weights (420 bytes a thread on sm_90a).
struct Thread {
  int index, lane, warp;
};

__device__ __forceinline__ Thread this_thread() {
  int index = static_cast<int>(threadIdx.x);
  asm volatile("" : "+r"(index));
  return {index, index & 31, index >> 5};
}

__device__ __forceinline__ float low_bf16(unsigned pair) { return __uint_as_float(pair << 16); }
__device__ __forceinline__ float high_bf16(unsigned pair) {
  return __uint_as_float(pair & 0xffff0000u);
}
__device__ __forceinline__ float widen(unsigned short bits) {
  return __uint_as_float(static_cast<unsigned>(bits) << 16);
}
// fp32 to bf16 bits, rounded to nearest even. A NaN stays a NaN.
__device__ __forceinline__ unsigned narrow(float x) {
  const unsigned u = __float_as_uint(x);
  if ((u & 0x7fffffffu) > 0x7f800000u) return (u >> 16) | 0x40u;
  return (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
}

// Positions that a step attends to: all rows before it and its own. context_bias is 0 outside of
// tests; 1 adds a row, -1 drops the newest one, but never the only one.
__device__ __forceinline__ int attended_positions(const LaunchParams& p, int position) {
  return max(1, position + 1 + p.context_bias);
}

// A residual that this block alone reads and writes between two waits.
template <typename S>
__device__ __forceinline__ float own_residual(const LaunchParams& p, int row) {
  if constexpr (kStays<S>) return p.residual[row];
  return ptx::load_l2(p.residual + row);
}

__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
  for (int offset = 16; offset > 0; offset >>= 1) x += __shfl_xor_sync(~0u, x, offset);
  return x;
}

// Where element e of a vector of `size` elements lies in Shared::activations, counted in floats. A
// lane multiplies 8 neighbouring weights. Of each 8 elements, the first 4 lie in the first half of
// the array, the last 4 in the second, so that a warp reads its activations without bank conflicts.
__device__ __forceinline__ int activation_index(int e, int size) {
  return ((e >> 2) & 1) * (size / 2) + (e >> 3) * 4 + (e & 3);
}

// Loads a vector, multiplies it by the RMSNorm weight and leaves it in Shared::activations. The
// caller multiplies its dot products by the returned 1 / rms: normalising afterwards takes the
// reduction off the critical path. load(e) returns element e as fp32. Every block sums in the same
// order, so all blocks get the same bits.
template <typename S, typename Load>
__device__ __forceinline__ float block_rms_norm(Thread me, Shared<S>& s,
                                                const unsigned short* weight, float eps,
                                                Load load) {
  constexpr int kSize = Dims<S>::kHidden;
  float* activations = reinterpret_cast<float*>(s.activations);
  float squares = 0;
  // Not unrolled further: the registers hold weights.
#pragma unroll 2
  for (int i = 0; i < ceil_div(kSize, kThreads<S>); ++i) {
    const int e = me.index + i * kThreads<S>;
    if (kSize % kThreads<S> == 0 || e < kSize) {
      const float x = load(e);
      squares = fmaf(x, x, squares);
      activations[activation_index(e, kSize)] = x * widen(__ldg(weight + e));
    }
  }
  squares = warp_sum(squares);
  if (me.lane == 0) s.square_sums[me.warp] = squares;
  __syncthreads();
  float total = 0;
#pragma unroll
  for (int w = 0; w < kWarps<S>; ++w) total += s.square_sums[w];
  return rsqrtf(total * (1.0f / kSize) + eps);
}

}  // namespace mkbench::plain
