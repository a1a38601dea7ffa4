// The ring megakernel: one cooperative launch decodes p.steps tokens. Read weight_ring.cuh and
// exchange.cuh first; a layer is four phases of the consumers, each summed up and handed on by the
// publisher.
#pragma once

#include "kernels/ring/phases/down.cuh"
#include "kernels/ring/phases/gate_up.cuh"
#include "kernels/ring/phases/lm_head.cuh"
#include "kernels/ring/phases/o_proj.cuh"
#include "kernels/ring/phases/qkv.cuh"
#include "kernels/ring/roles/loader.cuh"
#include "kernels/ring/roles/publisher.cuh"
#include "kernels/ring/roles/statistics.cuh"

namespace mkbench::ring {

// False when the launch has ended.
template <RingAblation kAblation>
__device__ __forceinline__ bool consume_layers(Consumer<kAblation>& c) {
#pragma unroll 1
  for (int layer = 0; layer < c.p.layers; ++layer) {
    c.epoch = next_epoch(c.epoch);
    if (!phase_qkv(c, layer)) return false;
    if (c.position() >= c.p.split_from) {
      phase_attention_out<true>(c, layer);
    } else {
      phase_attention_out<false>(c, layer);
    }
    phase_gate_up(c, layer);
    phase_down(c, layer);
  }
  return true;
}

template <RingAblation kAblation>
__device__ __forceinline__ void run_consumers(const LaunchParams& p, Shared& s, const char* slots,
                                              const Block& block) {
  Consumer<kAblation> c{p, s, block, {p, s, slots, {}}};
#pragma unroll 1
  for (; c.step < p.steps; ++c.step) {
    if (!consume_layers(c)) return;
    phase_lm_head(c);
  }
  ptx::named_sync<kOneMore>(kTokenDone);  // the last step's, that no QKV follows
}

template <RingAblation kAblation>
__device__ __forceinline__ void initialise(const LaunchParams& p, Shared& s, char* slots,
                                           const Block& block) {
  const int t = static_cast<int>(threadIdx.x);
  if (t == 0) {
    for (int i = 0; i < kRingSlots; ++i) {
      ptx::barrier_init(ptx::shared_address(&s.full[i]), 1);
      ptx::barrier_init(ptx::shared_address(&s.empty[i]), kConsumerWarps);
    }
    ptx::barrier_init_fence();
    s.rows_seen = 0;
    s.ended = 0;
    s.token = __ldg(p.inputs);
  }
  if (kAblation == RingAblation::kNoLoads) {  // what is consumed all the same must be finite
    for (int i = t; i < kRingSlots * kSlotBytes / 16; i += kThreads) {
      reinterpret_cast<uint4*>(slots)[i] = make_uint4(0, 0, 0, 0);
    }
  }
  for (int i = t; i < 2 * kConsumerThreads; i += kThreads) {
    (&s.seen[0][0])[i] = make_ulonglong2(0, 0);
  }
  for (int i = t; i < p.layers; i += kThreads) {
    s.key_maxima[i] = p.key_maxima[i * kGroups + block.group()];
  }
  __syncthreads();
}

template <RingAblation kAblation>
__global__ void __launch_bounds__(kThreads, 1) ring_decode(const __grid_constant__ LaunchParams p) {
  extern __shared__ __align__(1024) char shared[];
  char* slots = shared;
  Shared& s = *reinterpret_cast<Shared*>(shared + kRingSlots * kSlotBytes);
  const Block block = this_block();
  initialise<kAblation>(p, s, slots, block);
  const int warp = static_cast<int>(threadIdx.x) / 32;
  if (warp >= kRoleWarps) {
    ptx::grow_registers<kConsumerRegisters>();
    run_consumers<kAblation>(p, s, slots, block);
    return;
  }
  ptx::shrink_registers<kRoleRegisters>();
  if (warp == kPublisherWarp) run_publisher<kAblation>(p, s, block);
  if (warp == kLoaderWarp && threadIdx.x % 32 == 0 && kAblation != RingAblation::kNoLoads) {
    run_loader(p, s, slots, block);
  }
  if (warp == kStatisticsWarp) run_statistics<kAblation>(p, s, block);
}

}  // namespace mkbench::ring
