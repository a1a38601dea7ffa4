// A device translation unit of its own: plain's kernel for Tiny with faults planted inside, as PTX
// for any card of sm_80 and later. It specialises single functions of the phases for FaultyTiny;
// faults that no such function can express are planted between the phases. No shipped kernel holds
// code from this file.
#include "kernels/plain/instances/faults.h"
#include "kernels/plain/kernel.cuh"
#include "references/fault_kind.h"

namespace mkbench::plain {
namespace {

__device__ int planted_fault;

__device__ __forceinline__ bool planted(PlantedFault fault) {
  return planted_fault == static_cast<int>(fault);
}

struct FaultyTiny {
  static constexpr ModelShape kShape = kTiny;
};
using Faulty = Dims<FaultyTiny>;

}  // namespace

template <>
__device__ __forceinline__ unsigned long long key_of<FaultyTiny>(float logit, int row) {
  if (planted(PlantedFault::kNanLogit) && row == 0) return kNanKey;
  // A reduction by halving over 3 * 2^k slots loses every third slot.
  if (planted(PlantedFault::kArgmaxHalving) && row % 3 == 2) return 0;
  const unsigned long long key = best_key(logit, row);
  return planted(PlantedFault::kArgmaxHighest) && key != kNanKey ? key ^ 0xffffffffull : key;
}

template <>
__device__ __forceinline__ int row_of<FaultyTiny>(unsigned long long key) {
  const auto low = static_cast<unsigned>(key);
  return static_cast<int>(planted(PlantedFault::kArgmaxHighest) ? low : ~low);
}

template <>
__device__ __forceinline__ Range block_head_rows<FaultyTiny>(const LaunchParams& p) {
  Range rows = partition(p.vocab, static_cast<int>(gridDim.x), static_cast<int>(blockIdx.x));
  if (planted(PlantedFault::kTailRowsUnscored)) rows.end = min(rows.end, p.vocab - 128);
  return rows;
}

template <>
__device__ __forceinline__ float silu<FaultyTiny>(float x) {
  if (planted(PlantedFault::kGelu)) return 0.5f * x * (1.0f + erff(x * 0.70710678f));
  return x / (1.0f + __expf(-x));
}

__device__ __forceinline__ HeadValues warp_faulty_head(Thread me, const LaunchParams& p,
                                                       HeadValues x, const unsigned short* norm,
                                                       int position, PlantedFault skip_norm) {
  if (planted(PlantedFault::kDecodePositions) && p.first_output < p.steps) ++position;
  const RopePair* rope = p.rope + static_cast<size_t>(position) * (Faulty::kHeadDim / 2);
  if (planted(PlantedFault::kNormAfterRope)) {
    return warp_norm<Faulty::kHeadDim>(me, warp_rope<Faulty::kHeadDim>(me, x, rope), norm, p.eps);
  }
  if (!planted(skip_norm)) x = warp_norm<Faulty::kHeadDim>(me, x, norm, p.eps);
  return warp_rope<Faulty::kHeadDim>(me, x, rope);
}

template <>
__device__ __forceinline__ HeadValues warp_norm_rope<FaultyTiny, Head::kQuery>(
    Thread me, const LaunchParams& p, HeadValues x, const unsigned short* slab, int position) {
  if (planted(PlantedFault::kQueryPosition)) ++position;
  const unsigned short* norm = slab + Faulty::kLayout.q_norm;
  return warp_faulty_head(me, p, x, norm, position, PlantedFault::kSkipQNorm);
}

template <>
__device__ __forceinline__ HeadValues warp_norm_rope<FaultyTiny, Head::kKey>(
    Thread me, const LaunchParams& p, HeadValues x, const unsigned short* slab, int position) {
  const unsigned short* norm = slab + Faulty::kLayout.k_norm;
  return warp_faulty_head(me, p, x, norm, position, PlantedFault::kSkipKNorm);
}

template <>
__device__ __forceinline__ unsigned cached<FaultyTiny>(float x) {
  if (planted(PlantedFault::kKvThreeBits)) {
    x = __uint_as_float((__float_as_uint(x) + (1u << 19)) & ~((1u << 20) - 1));
  }
  return narrow(x);
}

template <>
__device__ __forceinline__ bool attends<FaultyTiny>(const ContextSlice<FaultyTiny>& slice,
                                                    int position) {
  if (planted(PlantedFault::kEvery16thSkipped) && position % 16 == 15) return false;
  return position < slice.positions.end;
}

template <>
__device__ __forceinline__ float running_maximum<FaultyTiny>(
    float maximum, const float (&scores)[kRowsInFlight<FaultyTiny>]) {
  if (planted(PlantedFault::kNoSoftmaxMax)) return 0;
#pragma unroll
  for (int i = 0; i < kRowsInFlight<FaultyTiny>; ++i) maximum = fmaxf(maximum, scores[i]);
  return maximum;
}

// kBf16Softmax rounds the factors of the merges, not only the softmax weights: in a short context a
// row group has a single row, whose softmax weight is exactly 1.
template <>
__device__ __forceinline__ float add_weighted<FaultyTiny>(float sum, float weight, float value) {
  if (planted(PlantedFault::kBf16Softmax)) weight = widen(narrow(weight));
  return fmaf(weight, value, sum);
}

namespace {

// Calls change(kv_head) in the block that writes the K and V of this position for kv_head.
template <typename Change>
__device__ __forceinline__ void block_change_newest(const LaunchParams& p, int position,
                                                    Change change) {
  const int blocks = static_cast<int>(gridDim.x);
  const int splits = attention_splits(attended_positions(p, position), Faulty::kKvHeads, blocks);
  for (int item = static_cast<int>(blockIdx.x); item < Faulty::kKvHeads * splits; item += blocks) {
    if (item % splits == splits - 1) change(item / splits);
  }
}

// Called before phase_attention(), after a wait for qkv. Gives V the norm that belongs to K.
__device__ __forceinline__ void block_norm_values(const LaunchParams& p, int layer, int position) {
  block_change_newest(p, position, [&](int kv_head) {
    const Thread me = this_thread();
    if (me.warp != 0) return;
    const unsigned short* slab = p.layers + layer * Faulty::kLayout.stride;
    float* raw = p.qkv + Faulty::kQ + Faulty::kKv + kv_head * Faulty::kHeadDim;
    const HeadValues v = warp_norm<Faulty::kHeadDim>(me, load_head<Faulty::kHeadDim>(me, raw),
                                                     slab + Faulty::kLayout.k_norm, p.eps);
    reinterpret_cast<float2*>(raw)[me.lane] = v.low;
    reinterpret_cast<float2*>(raw)[me.lane + 32] = v.high;
  });
  __syncthreads();
}

// Called after attention. Poisons this position's KV row; may first copy it to the row before.
__device__ __forceinline__ void block_unwrite_row(const LaunchParams& p, int layer, int position,
                                                  bool keep_in_row_before) {
  block_change_newest(p, position, [&](int kv_head) {
    const size_t row =
        (static_cast<size_t>(layer * Faulty::kKvHeads + kv_head) * p.max_context + position) *
        Faulty::kHeadDim;
    for (unsigned short* cache : {p.k_cache + row, p.v_cache + row}) {
      for (int d = static_cast<int>(threadIdx.x); d < Faulty::kHeadDim; d += kThreads<Faulty>) {
        if (keep_in_row_before) cache[d - Faulty::kHeadDim] = cache[d];
        cache[d] = 0xffff;
      }
    }
  });
}

// Called between the wait for swiglu and phase_down(), when no other block reads this block's rows.
__device__ __forceinline__ void block_drop_residual(const LaunchParams& p) {
  const Range rows =
      partition(Faulty::kHidden, static_cast<int>(gridDim.x), static_cast<int>(blockIdx.x));
  for (int r = rows.begin + static_cast<int>(threadIdx.x); r < rows.end; r += kThreads<Faulty>) {
    p.residual[r] = 0;
  }
  __syncthreads();
}

}  // namespace

// decode_step() of kernel.cuh, with faults between the phases.
template <>
__device__ __forceinline__ bool decode_step<FaultyTiny>(const LaunchParams& p,
                                                        Shared<FaultyTiny>& s,
                                                        const GridExchange& x, int step) {
  using S = FaultyTiny;
  const int position = p.position + step;
#pragma unroll 1
  for (int layer = 0; layer < p.layer_count; ++layer) {
    if (!phase_qkv<S>(p, s, x, step, layer)) return false;
    if (planted(PlantedFault::kValueNormed)) {
      if (!x.block_wait(s, Phase::kAttention, layer, position)) return false;
      block_norm_values(p, layer, position);
    }
    if (!phase_attention<S>(p, s, x, step, layer)) return false;
    // One block in the middle of the grid never leaves this loop in the last layer.
    while (planted(PlantedFault::kBlockDelayed) && layer == p.layer_count - 1 &&
           blockIdx.x == gridDim.x / 2) {
      __nanosleep(1000000);
    }
    const bool moved = planted(PlantedFault::kKvRowBefore) && position > 0;
    const bool unwritten = planted(PlantedFault::kSlotUnwritten) && position == 16;
    if (moved || unwritten) block_unwrite_row(p, layer, position, moved);
    if (!phase_o_proj<S>(p, s, x, step, layer)) return false;
    if (!phase_gate_up<S>(p, s, x, step, layer)) return false;
    if (planted(PlantedFault::kMlpResidualDropped) && layer == 1) {
      if (!x.block_wait(s, Phase::kDown, layer, position)) return false;
      block_drop_residual(p);
    }
    if (!phase_down<S>(p, s, x, step, layer)) return false;
  }
  if (step < p.first_output) return true;
  if (!phase_lm_head<S>(p, s, x, step)) return false;
  // The thread that wrote the logit makes it NaN; all blocks have seen the NaN through key_of().
  if (planted(PlantedFault::kNanLogit) && p.logits != nullptr && blockIdx.x + threadIdx.x == 0) {
    p.logits[static_cast<size_t>(step - p.first_output) * p.vocab] = __uint_as_float(0x7fc00000u);
  }
  return true;
}

const void* faulty_kernel() { return reinterpret_cast<const void*>(&plain_decode<FaultyTiny>); }

const void* planted_fault_symbol() { return reinterpret_cast<const void*>(&planted_fault); }

}  // namespace mkbench::plain
