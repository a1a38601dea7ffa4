// The plain megakernel: a table of contents. A token is embedding, layers of five phases each, LM
// head and argmax; each phase has a file of its own.
#pragma once

#include "kernels/plain/phases/attention.cuh"
#include "kernels/plain/phases/down.cuh"
#include "kernels/plain/phases/gate_up.cuh"
#include "kernels/plain/phases/lm_head.cuh"
#include "kernels/plain/phases/o_proj.cuh"
#include "kernels/plain/phases/qkv.cuh"

namespace mkbench::plain {

// One phase of a layer, or the LM head, whatever stands between phases (`x`); what a phase returns.
template <typename S, typename X>
__device__ __forceinline__ bool run_phase(Phase phase, const LaunchParams& p, Shared<S>& s,
                                          const X& x, int step, int layer) {
  switch (phase) {
    case Phase::kQkv:
      return phase_qkv<S>(p, s, x, step, layer);
    case Phase::kAttention:
      return phase_attention<S>(p, s, x, step, layer);
    case Phase::kOProj:
      return phase_o_proj<S>(p, s, x, step, layer);
    case Phase::kGateUp:
      return phase_gate_up<S>(p, s, x, step, layer);
    case Phase::kDown:
      return phase_down<S>(p, s, x, step, layer);
    case Phase::kLmHead:
      return phase_lm_head<S>(p, s, x, step);
    case Phase::kEmbed:
    case Phase::kCount:
      break;
  }
  return true;
}

// False when the launch must end: a wait ran out, or a logit was NaN.
template <typename S>
__device__ __forceinline__ bool decode_step(const LaunchParams& p, Shared<S>& s,
                                            const GridExchange& x, int step) {
#pragma unroll 1
  for (int layer = 0; layer < p.layer_count; ++layer) {
    if (!phase_qkv<S>(p, s, x, step, layer)) return false;  // embeds the token in layer 0
    if (!phase_attention<S>(p, s, x, step, layer)) return false;
    if (!phase_o_proj<S>(p, s, x, step, layer)) return false;
    if (!phase_gate_up<S>(p, s, x, step, layer)) return false;
    if (!phase_down<S>(p, s, x, step, layer)) return false;
  }
  return step < p.first_output || phase_lm_head<S>(p, s, x, step);
}

// Timeline of a launch (kernels/timeline_events.h): thread 0 writes the block's track, the last
// thread reads both clocks once a step. No-ops in an instance that does not record.
template <typename S>
__device__ __forceinline__ void begin_timeline(const LaunchParams& p, Shared<S>& s) {
  if constexpr (kRecords<S>) {
    if (threadIdx.x == 0) s.track.begin(p.timeline, static_cast<int>(blockIdx.x), true);
  }
}
template <typename S>
__device__ __forceinline__ void read_clocks(const LaunchParams& p, int step) {
  if constexpr (kRecords<S>) {
    if (threadIdx.x == kThreads<S> - 1)
      write_anchor(p.timeline.anchors + static_cast<int>(blockIdx.x) * (p.steps + 1) + step);
  }
}
template <typename S>
__device__ __forceinline__ void end_timeline(Shared<S>& s) {
  if constexpr (kRecords<S>) {
    if (threadIdx.x == 0) s.track.end(static_cast<int>(blockIdx.x));
  }
}

// Runs p.steps decode steps in one cooperative launch: one block of kThreads<S> threads per multiprocessor,
// each with sizeof(Shared<S>) bytes of dynamic shared memory.
template <typename S>
__global__ void __launch_bounds__(kThreads<S>, 1)
    plain_decode(const __grid_constant__ LaunchParams p) {
  static_assert(sizeof(Shared<S>) <= 99 * 1024, "granted by every card of sm_80 and later");
  extern __shared__ __align__(16) char shared[];
  Shared<S>& s = *reinterpret_cast<Shared<S>*>(shared);
  const GridExchange x{p};
  if (threadIdx.x == 0) s.expected = first_count<S>(p);
  begin_timeline(p, s);
  const bool keeps_time = blockIdx.x == 0 && threadIdx.x == kThreads<S> - 1;
  if (keeps_time) p.cycles[0] = ptx::sm_cycles();
#pragma unroll 1
  for (int step = 0; step < p.steps; ++step) {
    if (keeps_time) {
      p.token_ns[step] = ptx::global_ns();
      ptx::store_system(&p.status->progress_position, p.position + step);
    }
    read_clocks<S>(p, step);
    if (!decode_step<S>(p, s, x, step)) {
      end_timeline(s);
      return x.block_leave(s, p.position + step);
    }
  }
  if (!x.block_wait(s, Phase::kEmbed, 0, p.position + p.steps))
    return x.block_leave(s, p.position + p.steps);
  if (p.steps > p.first_output) block_select_token(this_thread(), p, s, p.steps);
  end_timeline(s);
  read_clocks<S>(p, p.steps);
  if (keeps_time) {
    p.token_ns[p.steps] = ptx::global_ns();
    p.cycles[1] = ptx::sm_cycles();
  }
}

}  // namespace mkbench::plain
