// A device translation unit of its own: plain's phases as kernels, and what each requests ahead of its wait.
#include "kernels/layer_shapes.h"
#include "kernels/plain/block.cuh"
#include "kernels/ptx_sm90.cuh"

namespace mkbench::plain {

// A phase whose weights a thread holds in registers: 8 warps of 128 registers leave room for another kernel's
// block on the multiprocessor, but cannot hold a longer row.
template <int kIndex>
struct InRegisters {
  static constexpr ModelShape kShape = kLayerShapes.shapes[kIndex];
};
template <int kIndex>
inline constexpr int kWarps<InRegisters<kIndex>> =
    kLayerShapes.shapes[kIndex].intermediate <= 16384 ? 8 : 16;

// The LM head, beside which nothing is to run.
template <int kIndex>
struct HeadAlone {
  static constexpr ModelShape kShape = kLayerShapes.shapes[kIndex];
};

// A phase whose weights are staged (staged.cuh): 16 warps of 64 registers, and no shared memory for attention.
template <int kIndex>
struct Staged {
  static constexpr ModelShape kShape = kLayerShapes.shapes[kIndex];
};
// Blocks of different kernels share a multiprocessor's L1, and none of them stays there.
template <int kIndex>
inline constexpr bool kStays<InRegisters<kIndex>> = false;
template <int kIndex>
inline constexpr bool kStays<HeadAlone<kIndex>> = false;
template <int kIndex>
inline constexpr bool kStays<Staged<kIndex>> = false;

template <int kIndex>
struct AttentionShared<Staged<kIndex>> {};
template <int kIndex>
inline constexpr int kCombinedAtOnce<Staged<kIndex>> =
    kLayerShapes.shapes[kIndex].hidden == 1024 ? 8 : 6;  // Qwen3-0.6B; CUDA 12.8 spills in others

}  // namespace mkbench::plain

#include "kernels/plain/graph/kernels.h"
#include "kernels/plain/graph/staged.cuh"
#include "kernels/plain/kernel.cuh"

namespace mkbench::plain {
namespace {

__constant__ LaunchParams launch_params;

// The exchange of phases that are kernels: the end of the kernel before.
struct KernelExchange {
  template <typename S>
  __device__ __forceinline__ bool block_wait(const Shared<S>&, Phase, int, int) const {
    ptx::wait_for_kernel_before();
    return true;
  }
  template <typename S>
  __device__ __forceinline__ void warp_arrive(const Shared<S>&) const {}
};

// The block's rows of qkv, o_proj, gate_up or down.
template <typename S>
__device__ __forceinline__ StagedRows staged_rows(const LaunchParams& p, Phase phase, int layer) {
  using D = Dims<S>;
  const unsigned short* slab = p.layers + layer * D::kLayout.stride;
  const auto own = [](const unsigned short* first, const unsigned short* second, int rows,
                      int cols) {
    const Range r = partition(rows, static_cast<int>(gridDim.x), static_cast<int>(blockIdx.x));
    return StagedRows{first, second, r.begin, r.size(), cols};
  };
  switch (phase) {
    case Phase::kQkv:
      return own(slab + D::kLayout.qkv, nullptr, D::kQkv, D::kHidden);
    case Phase::kOProj:
      return own(slab + D::kLayout.o, nullptr, D::kHidden, D::kQ);
    case Phase::kGateUp:
      return own(slab + D::kLayout.gate, slab + D::kLayout.up, D::kIntermediate, D::kHidden);
    default:
      return own(slab + D::kLayout.down, nullptr, D::kHidden, D::kIntermediate);
  }
}

// What follows the request for the phase's rows.
template <typename S, Phase kPhase>
__device__ __forceinline__ void finish_staged(const LaunchParams& p, StagedShared<S>& s,
                                              const StagedRows& own, int step, int layer) {
  using D = Dims<S>;
  const Thread me = this_thread();
  const int row = own.begin + me.index;  // a thread stores one row at most
  const bool has_row = me.index < own.count;
  ptx::wait_for_kernel_before();
  if constexpr (kPhase == Phase::kQkv) {
    using Plan = StagedPlan<S, D::kQkv, D::kHidden>;
    // Without a token nothing is computed; but a block must not end before its copies have.
    const float scale = block_qkv_input(me, p, s.plain, step, layer);
    if (scale < 0) return wait_for_rows(s);
    block_staged_dot<Plan, D::kHidden>(me, s, own.rows());
    if (has_row) store_qkv<S>(p, layer, row, staged_sum<Plan>(s, me.index) * scale);
  } else if constexpr (kPhase == Phase::kGateUp) {
    using Plan = StagedPlan<S, 2 * D::kIntermediate, D::kHidden>;
    const unsigned short* norm = p.layers + layer * D::kLayout.stride + D::kLayout.post_norm;
    const float scale = block_rms_norm(me, s.plain, norm, p.eps,
                                       [&](int e) { return ptx::load_l2(p.residual + e); });
    block_staged_dot<Plan, D::kHidden>(me, s, own.rows());
    if (!has_row) return;
    const float gate = staged_sum<Plan>(s, me.index) * scale;
    p.swiglu[row] = silu<S>(gate) * (staged_sum<Plan>(s, own.count + me.index) * scale);
  } else {
    constexpr int kCols = kPhase == Phase::kOProj ? D::kQ : D::kIntermediate;
    using Plan = StagedPlan<S, D::kHidden, kCols>;
    const float before = has_row ? ptx::load_l2(p.residual + row) : 0;
    if constexpr (kPhase == Phase::kOProj) {
      block_o_proj_input(me, p, s.plain, step);
      block_staged_dot<Plan, kCols>(me, s, own.rows());
      if (has_row) p.residual[row] = before + staged_sum<Plan>(s, me.index);
    } else {
      block_down_input(me, p, s.plain);
      block_staged_dot<Plan, kCols>(me, s, own.rows());
      if (has_row)
        store_down<S>(p, keeps_hidden(p, step), layer, row, before + staged_sum<Plan>(s, me.index));
    }
  }
}

// Chooses the token, and counts the step. Block 0 alone calls this.
template <typename S>
__device__ __forceinline__ void end_step(const LaunchParams& p, Shared<S>& s, int step) {
  ptx::wait_for_kernel_before();
  if (step + 1 > p.first_output) block_select_token(this_thread(), p, s, step + 1);
  __syncthreads();  // all threads have read the count
  if (threadIdx.x != 0) return;
  p.token_ns[step + 1] = ptx::global_ns();
  *p.arrivals = static_cast<unsigned>(step + 1);
}

// What kernels do before they wait. Returns the step, which *p.arrivals counts: no kernel of a step begins before
// all of the step before have ended, and only the last one writes the count, so it may be read before the wait.
__device__ __forceinline__ int begin_phase(const LaunchParams& p, Phase phase, int layer) {
  const int step = static_cast<int>(ptx::load_relaxed(p.arrivals));
  if (phase == Phase::kQkv && layer == 0 && blockIdx.x == 0 && threadIdx.x == 0) {
    p.token_ns[step] = ptx::global_ns();
    ptx::store_system(&p.status->progress_position, p.position + step);
  }
  return step;
}

// Any phase; Phase::kCount ends the step.
template <typename S, bool kHead>
__global__ void __launch_bounds__(kThreads<S>, kHead || kWarps<S> == 16 ? 1 : 2)
    graph_phase(Phase phase, int layer, unsigned /*pause_ns*/) {
  extern __shared__ __align__(16) char shared[];
  Shared<S>& s = *reinterpret_cast<Shared<S>*>(shared);
  const LaunchParams& p = launch_params;
  ptx::let_next_kernel_begin();
  if (phase == Phase::kCount && blockIdx.x != 0) return;
  const int step = begin_phase(p, phase, layer);
  if constexpr (kHead) {
    phase_lm_head<S>(p, s, KernelExchange{}, step);
  } else if (phase == Phase::kCount) {
    end_step(p, s, step);
  } else {
    run_phase(phase, p, s, KernelExchange{}, step, layer);
  }
}

// A phase whose rows fit into the launch's shared memory.
template <typename S>
__global__ void __launch_bounds__(kThreads<S>, 2)
    staged_phase(Phase phase, int layer, unsigned pause_ns) {
  extern __shared__ __align__(16) char shared[];
  StagedShared<S>& s = *reinterpret_cast<StagedShared<S>*>(shared);
  const LaunchParams& p = launch_params;
  const StagedRows own = staged_rows<S>(p, phase, layer);
  ptx::let_next_kernel_begin();
  if (threadIdx.x == 0) request_rows(s, own, pause_ns);
  const int step = begin_phase(p, phase, layer);
  if (phase == Phase::kQkv) return finish_staged<S, Phase::kQkv>(p, s, own, step, layer);
  if (phase == Phase::kOProj) return finish_staged<S, Phase::kOProj>(p, s, own, step, layer);
  if (phase == Phase::kGateUp) return finish_staged<S, Phase::kGateUp>(p, s, own, step, layer);
  finish_staged<S, Phase::kDown>(p, s, own, step, layer);
}

template <typename S>
GraphKernel kernel_of(void (*kernel)(Phase, int, unsigned), size_t shared_bytes) {
  return {reinterpret_cast<const void*>(kernel), kThreads<S>, static_cast<int>(shared_bytes)};
}

// Whether a block's rows of the smallest matrix, O-projection's, fit into half of a multiprocessor's shared memory
// on a card with twice as many multiprocessors as usual.
constexpr bool can_stage(const ModelShape& s) {
  return 2 * ceil_div(s.hidden, 2 * kUsualBlocks) * s.q_width() <= 113 * 1024;
}

template <int kIndex>
GraphKernels find_kernels(const ModelShape& shape) {
  if constexpr (kIndex < kLayerShapes.count) {
    if (!shape.same_layer_shape(kLayerShapes.shapes[kIndex]))
      return find_kernels<kIndex + 1>(shape);
    using R = InRegisters<kIndex>;
    using H = HeadAlone<kIndex>;
    using T = Staged<kIndex>;
    GraphKernels found{.registers = kernel_of<R>(&graph_phase<R, false>, sizeof(Shared<R>)),
                       .staged = {},
                       .head = kernel_of<H>(&graph_phase<H, true>, sizeof(Shared<H>))};
    if constexpr (can_stage(T::kShape))
      found.staged = kernel_of<T>(&staged_phase<T>, sizeof(StagedShared<T>));
    return found;
  }
  return {};
}

}  // namespace

GraphKernels graph_kernels_for(const ModelShape& shape) { return find_kernels<0>(shape); }

const void* graph_params_symbol() { return &launch_params; }

}  // namespace mkbench::plain
