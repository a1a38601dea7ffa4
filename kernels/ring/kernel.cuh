// The ring megakernel: one cooperative launch decodes p.steps tokens. Each of its 128 blocks has 20
// warps: 16 consumers, a loader, a publisher, a statistics warp and one that idles (block.cuh).
//
// A layer runs the phases of held/ if the weights of a phase fit into the consumers' registers
// (Qwen3-0.6B), else the phases of streamed/ (layer_plan.h decides); phases/ holds what both use. The
// timelines of one block, roles across, are in held/layer.cuh and streamed/layer.cuh. Their signs:
//   -- kName ->  named barrier (enum Barrier): the role at the arrow's tail arrives, the role at its
//                head waits; kConsumers is a barrier among the consumers
//   ==>          slots of the ring (weight_ring.cuh), with their number: the consumers wait for
//                `full` and arrive at `empty`; the loader waits for `empty` before it fills a slot
//   ~name        words in global memory, exchanged with other blocks (exchange.cuh)
//   [e], [o]     the set of Shared::partials and of kPartials: e = step % 2, o = 1 - e
//
// The loader runs ahead of the consumers as far as the ring has room. It leaves when Shared::ended
// is set or all steps are streamed; the other roles end at Shared::token == -1 or after all steps.
#pragma once

#include "kernels/ring/held/layer.cuh"
#include "kernels/ring/roles/loader.cuh"
#include "kernels/ring/roles/publisher.cuh"
#include "kernels/ring/roles/statistics.cuh"
#include "kernels/ring/streamed/layer.cuh"

namespace mkbench::ring {

// The consumers' part of one step's layers. Returns false when the launch has ended.
template <typename L, RingAblation kAblation>
__device__ __forceinline__ bool consume_layers(Consumer<L, kAblation>& c) {
#pragma unroll 1
  for (int layer = 0; layer < c.p.layers; ++layer) {
    c.epoch = next_epoch(c.epoch);
    if constexpr (L::kHeld) {
      if (!held_layer(c, layer)) return false;
    } else {
      if (!streamed_layer(c, layer)) return false;
    }
  }
  return true;
}

template <typename L, RingAblation kAblation>
__device__ __forceinline__ void run_consumers(const LaunchParams& p, Shared<L>& s,
                                              const char* slots, const Block& block) {
  Consumer<L, kAblation> c{p, s, block, {p, s, slots, {}, {}}};
  const int number = static_cast<int>(blockIdx.x) * kTracks + kConsumerTrack;
  c.ring.track.begin(p.timeline, number, threadIdx.x == kRoleWarps * 32);
#pragma unroll 1
  for (; c.step < p.steps; ++c.step) {
    if (!consume_layers(c)) return c.ring.track.end(number);
    if constexpr (L::kHeld) {
      phase_lm_head(c);
    } else {
      stream_lm_head(c);
    }
  }
  c.enter(SpanKind::kExchange, Phase::kEmbed, -1);
  ptx::named_sync<kOneMore>(kTokenDone);  // no phase_qkv() waits for the last step's token
  c.ring.track.end(number);
}

template <typename L, RingAblation kAblation>
__device__ __forceinline__ void initialise(const LaunchParams& p, Shared<L>& s, char* slots,
                                           const Block& block) {
  const int t = static_cast<int>(threadIdx.x);
  if (t == 0) {
    for (int i = 0; i < kRingSlots<L>; ++i) {
      ptx::barrier_init(ptx::shared_address(&s.full[i]), 1);
      ptx::barrier_init(ptx::shared_address(&s.empty[i]), kConsumerWarps);
    }
    ptx::barrier_init_fence();
    s.rows_seen = 0;
    s.ended = 0;
    s.token = __ldg(p.inputs);
  }
  if (kAblation == RingAblation::kNoLoads) {  // the consumers still read the slots
    for (int i = t; i < kRingSlots<L> * kSlotBytes / 16; i += kThreads) {
      reinterpret_cast<uint4*>(slots)[i] = make_uint4(0, 0, 0, 0);
    }
  }
  for (int i = t; i < L::kHidden; i += kThreads) {
    (&s.seen[0][0])[i] = make_ulonglong2(0, 0);
  }
  for (int i = t; i < p.layers; i += kThreads) {
    s.key_maxima[i] = p.key_maxima[i * kGroups + block.group()];
  }
  __syncthreads();
}

// One thread of the warp without a role reads both clocks for the timeline, up to kReadingsPerStep
// times a step (evenly spaced if the step takes as long as the one before), and once at the end.
template <typename L>
__device__ __forceinline__ void read_clocks(const LaunchParams& p, const Shared<L>& s) {
  constexpr unsigned kFirstGapNs = 8192;
  const int readings = readings_per_step(kReadingsPerStep, p.steps);
  const auto most = static_cast<unsigned>(readings);
  TimelineAnchor* anchors =
      p.timeline.anchors + static_cast<int>(blockIdx.x) * (p.steps * readings + 1);
  unsigned gap_ns = kFirstGapNs;
#pragma unroll 1
  for (int step = 0;; ++step, anchors += readings) {
    const auto begin = static_cast<unsigned>(ptx::global_ns());
    const auto passed_ns = [&] { return static_cast<unsigned>(ptx::global_ns()) - begin; };
    unsigned made = 0;
#pragma unroll 1
    do {
      if (made < most && passed_ns() >= made * gap_ns) write_anchor(anchors + made++);
      if (step == p.steps) return;
      __nanosleep(500);
      if (s.rows_seen > step) break;
    } while (s.ended == 0 && !any_fault(p));
    if (s.rows_seen <= step) return;
    gap_ns = passed_ns() / most + 1;
  }
}

// The block's number, for one role. In a streamed shape no register is free to keep the number for
// all roles, so each role computes it anew.
template <typename L>
__device__ __forceinline__ Block role_block(const Block& block) {
  return L::kHeld ? block : Block{place_of(opaque(static_cast<int>(blockIdx.x)))};
}

template <typename L, RingAblation kAblation>
__device__ __forceinline__ void run_block(const LaunchParams& p, char* shared) {
  char* slots = shared;
  Shared<L>& s = *reinterpret_cast<Shared<L>*>(shared + kRingSlots<L> * kSlotBytes);
  const Block block = this_block();
  initialise<L, kAblation>(p, s, slots, block);
  const int warp = static_cast<int>(threadIdx.x) / 32;
  if (warp >= kRoleWarps) {
    ptx::grow_registers<kConsumerRegisters>();
    run_consumers<L, kAblation>(p, s, slots, role_block<L>(block));
    return;
  }
  ptx::shrink_registers<kRoleRegisters>();
  if (warp == kPublisherWarp) run_publisher<L, kAblation>(p, s, role_block<L>(block));
  if (warp == kLoaderWarp && threadIdx.x % 32 == 0 && kAblation != RingAblation::kNoLoads) {
    run_loader<kAblation == RingAblation::kRecorded>(p, s, slots, role_block<L>(block));
  }
  if (warp == kStatisticsWarp) run_statistics<L, kAblation>(p, s, role_block<L>(block));
  if constexpr (kAblation == RingAblation::kRecorded) {
    if (threadIdx.x == (kRoleWarps - 1) * 32) read_clocks(p, s);
  }
}

#ifdef __CUDA_ARCH__
inline constexpr int kComputeMajor = __CUDA_ARCH__ / 100;
#else
inline constexpr int kComputeMajor = 9;
#endif

// Empty on architectures whose shared memory is too small for L: the host rejects them (rows.h).
template <typename L, RingAblation kAblation>
__global__ void __launch_bounds__(kThreads, 1) ring_decode(const __grid_constant__ LaunchParams p) {
  if constexpr (has_room<L>(kComputeMajor)) {
    extern __shared__ __align__(1024) char shared[];
    run_block<L, kAblation>(p, shared);
  }
}

}  // namespace mkbench::ring
