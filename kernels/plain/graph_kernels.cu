// A device translation unit of its own: plain's phases as kernels, and what each requests ahead of its wait.
#include "kernels/layer_shapes.h"
#include "kernels/plain/block.cuh"
#include "kernels/ptx_sm90.cuh"

namespace mkbench::plain {

template <int kIndex>
struct InGraph {
  static constexpr ModelShape kShape = kLayerShapes.shapes[kIndex];
};
// With 8 warps of 128 registers a thread, two kernels' blocks share a multiprocessor. 8 warps cannot hold a
// longer row.
template <int kIndex>
inline constexpr int kWarps<InGraph<kIndex>> =
    kLayerShapes.shapes[kIndex].intermediate <= 16384 ? 8 : 16;

}  // namespace mkbench::plain

#include "kernels/plain/graph_kernels.h"
#include "kernels/plain/kernel.cuh"

namespace mkbench::plain {
namespace {

__constant__ LaunchParams launch_params;

// What stands between two phases: the end of a kernel.
struct KernelExchange {
  template <typename S>
  __device__ __forceinline__ bool block_wait(const Shared<S>&, Phase, int, int) const {
    ptx::wait_for_kernel_before();
    return true;
  }
  template <typename S>
  __device__ __forceinline__ void warp_arrive(const Shared<S>&) const {}
};

// Requests this block's rows of a matrix, at most `most` of them.
__device__ __forceinline__ void request_rows(const unsigned short* matrix, int rows, int cols,
                                             int most) {
  const Range own = partition(rows, static_cast<int>(gridDim.x), static_cast<int>(blockIdx.x));
  const int count = min(own.size(), most);
  if (count > 0)
    ptx::request_in_l2(matrix + static_cast<size_t>(own.begin) * cols,
                       static_cast<unsigned>(2 * count * cols));
}

// Rows of the LM head that a block has requested when that phase begins, and of other matrices.
inline constexpr int kHeadRows = 32, kAllRows = 1 << 16;

// Requests weights of a later phase, so that memory stays busy while this phase waits and reduces.
template <typename S>
__device__ __forceinline__ void request_ahead(const LaunchParams& p, Phase phase, int layer) {
  using D = Dims<S>;
  const unsigned short* slab = p.layers + layer * D::kLayout.stride;
  switch (phase) {
    case Phase::kQkv:
      return request_rows(slab + D::kLayout.o, D::kHidden, D::kQ, kAllRows);
    case Phase::kAttention:
      request_rows(slab + D::kLayout.gate, D::kIntermediate, D::kHidden, kAllRows);
      return request_rows(slab + D::kLayout.up, D::kIntermediate, D::kHidden, kAllRows);
    case Phase::kOProj:
      return request_rows(slab + D::kLayout.down, D::kHidden, D::kIntermediate, kAllRows);
    case Phase::kGateUp:
      if (layer + 1 == p.layer_count) return request_rows(p.head, p.vocab, D::kHidden, kHeadRows);
      return request_rows(slab + D::kLayout.stride + D::kLayout.qkv, D::kQkv, D::kHidden, kAllRows);
    case Phase::kCount:  // the step's end
      return request_rows(p.layers + D::kLayout.qkv, D::kQkv, D::kHidden, kAllRows);
    case Phase::kEmbed:
    case Phase::kDown:
    case Phase::kLmHead:
      break;
  }
}

// Chooses the token, and counts the step.
template <typename S>
__device__ __forceinline__ void end_step(const LaunchParams& p, Shared<S>& s, int step) {
  ptx::wait_for_kernel_before();
  if (step + 1 > p.first_output) block_select_token(this_thread(), p, s, step + 1);
  if (blockIdx.x != 0 || threadIdx.x != 0) return;
  p.token_ns[step + 1] = ptx::global_ns();
  *p.arrivals = static_cast<unsigned>(step + 1);
}

// A phase of the step that *p.arrivals counts; Phase::kCount ends the step. No kernel of a step begins before
// all of the step before have ended, and only the last one writes the count: it may be read before the wait.
template <typename S>
__global__ void __launch_bounds__(kThreads<S>, 512 / kThreads<S>) graph_phase(Phase phase, int layer) {
  extern __shared__ __align__(16) char shared[];
  Shared<S>& s = *reinterpret_cast<Shared<S>*>(shared);
  const LaunchParams& p = launch_params;
  ptx::let_next_kernel_begin();
  const int step = static_cast<int>(ptx::load_relaxed(p.arrivals));
  if (threadIdx.x == 0) request_ahead<S>(p, phase, layer);
  if (phase == Phase::kCount) return end_step(p, s, step);
  if (phase == Phase::kQkv && layer == 0 && blockIdx.x == 0 && threadIdx.x == 0) {
    p.token_ns[step] = ptx::global_ns();
    ptx::store_system(&p.status->progress_position, p.position + step);
  }
  run_phase(phase, p, s, KernelExchange{}, step, layer);
}

template <int kIndex>
GraphKernel find_kernel(const ModelShape& shape) {
  if constexpr (kIndex < kLayerShapes.count) {
    using S = InGraph<kIndex>;
    if (!shape.same_layer_shape(S::kShape)) return find_kernel<kIndex + 1>(shape);
    return {reinterpret_cast<const void*>(&graph_phase<S>), kThreads<S>,
            static_cast<int>(sizeof(Shared<S>))};
  }
  return {};
}

}  // namespace

GraphKernel graph_kernel_for(const ModelShape& shape) { return find_kernel<0>(shape); }

const void* graph_params_symbol() { return &launch_params; }

}  // namespace mkbench::plain
