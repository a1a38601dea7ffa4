// A block's shape, its shared memory, and the few operations that all phases use.
#pragma once

#include "kernels/partition.h"
#include "kernels/plain/params.h"
#include "kernels/ptx.cuh"
#include "references/fault_kind.h"

namespace mkbench::plain {

inline constexpr int kWarps = 16;
inline constexpr int kThreads =
    kWarps * 32;  // 512 threads leave 128 registers each: a phase's weights fit

// The maximum of no attention scores: finite, so that differences of maxima stay so.
inline constexpr float kNoScore = -1e30f;

MKBENCH_HD constexpr int ceil_div(int a, int b) { return (a + b - 1) / b; }
constexpr int max_of(int a, int b) { return a > b ? a : b; }

// S names a shape that is compiled in (kernel.cu); these are its dimensions.
template <typename S>
struct Dims {
  static constexpr ModelShape kShape = S::kShape;
  static constexpr int kHidden = kShape.hidden;
  static constexpr int kIntermediate = kShape.intermediate;
  static constexpr int kHeads = kShape.heads;
  static constexpr int kKvHeads = kShape.kv_heads;
  static constexpr int kHeadDim = kShape.head_dim;
  static constexpr int kGroup = kHeads / kKvHeads;
  static constexpr int kQ = kHeads * kHeadDim;
  static constexpr int kKv = kKvHeads * kHeadDim;
  static constexpr int kQkv = kQ + 2 * kKv;
  static constexpr int kActivations = max_of(max_of(kHidden, kIntermediate), kQ);
  static constexpr LayerLayout kLayout = layer_layout(kShape);
  static_assert(kHeadDim == 128, "attention deals one KV row to 16 lanes of 8 elements");
  static_assert(kHidden % 8 == 0 && kIntermediate % 16 == 0, "rows are read 16 bytes at a time");
};

// Whether the phases of S carry `fault`. Never in the instances that ship, whose code does not know
// of it; fault_instance.cu has one that asks at run time.
template <typename S>
__device__ __forceinline__ bool planted(PlantedFault fault) {
  if constexpr (requires { S::planted(fault); }) {
    return S::planted(fault);
  } else {
    return false;
  }
}

// Static shared memory of a block. The phases use it one after the other.
template <typename S>
struct Shared {
  using Shape = S;
  using D = Dims<S>;
  float4
      activations[D::kActivations / 4];  // fp32 vector of the running phase, see activation_index()
  float4 numerators[kWarps][D::kGroup][D::kHeadDim / 4];  // attention, one partial a warp
  float maxima[kWarps][D::kGroup], sums[kWarps][D::kGroup];
  float4 query[D::kGroup][D::kHeadDim / 4];              // after QK-norm, RoPE and scale
  uint4 new_k[D::kHeadDim / 8], new_v[D::kHeadDim / 8];  // the current position's row, bf16
  float row_sums[96];         // dot products of a tile's rows (and K segments)
  float square_sums[kWarps];  // RMSNorm
  unsigned long long best[kWarps];
  int token;
  int wait_ok;
  unsigned expected;  // thread 0's, see GridExchange
};

// Who a thread is. Each phase asks anew through an opaque copy, or the compiler computes every
// phase's addresses ahead of the layer loop and spills the registers that a phase keeps its weights
// in (420 bytes a thread on sm_90a).
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
// Round to nearest even; values here are finite or NaN by fault, and NaN must stay NaN.
__device__ __forceinline__ unsigned narrow(float x) {
  const unsigned u = __float_as_uint(x);
  if ((u & 0x7fffffffu) > 0x7f800000u) return (u >> 16) | 0x40u;
  return (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
}

// Positions that a step attends to: all rows and its own. The planted fault drops the newest, but
// never the only one.
__device__ __forceinline__ int attended_positions(const LaunchParams& p, int position) {
  return max(1, position + 1 + p.context_bias);
}

__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
  for (int offset = 16; offset > 0; offset >>= 1) x += __shfl_xor_sync(~0u, x, offset);
  return x;
}

// Where element e of a vector of `size` elements lies in Shared::activations, in floats. A lane
// multiplies 8 neighbouring weights; two planes of 4 let a warp read its activations without bank
// conflicts.
__device__ __forceinline__ int activation_index(int e, int size) {
  return ((e >> 2) & 1) * (size / 2) + (e >> 3) * 4 + (e & 3);
}

// Loads a vector, multiplies it by the RMSNorm weight and leaves it in Shared::activations. The
// caller multiplies its dot products by the returned 1 / rms: normalising afterwards takes the
// reduction off the critical path. load(e): element e as fp32. The same bits in every block: each
// sums in the same order.
template <typename S, typename Load>
__device__ __forceinline__ float block_rms_norm(Thread me, Shared<S>& s,
                                                const unsigned short* weight, float eps,
                                                Load load) {
  constexpr int kSize = Dims<S>::kHidden;
  float* activations = reinterpret_cast<float*>(s.activations);
  float squares = 0;
#pragma unroll
  for (int i = 0; i < ceil_div(kSize, kThreads); ++i) {
    const int e = me.index + i * kThreads;
    if (kSize % kThreads == 0 || e < kSize) {
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
  for (int w = 0; w < kWarps; ++w) total += s.square_sums[w];
  return rsqrtf(total * (1.0f / kSize) + eps);
}

}  // namespace mkbench::plain
