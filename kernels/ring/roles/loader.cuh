// The loader: one thread that streams everything a block reads in a launch through the ring.
// Reads   stream (slots of this block); kv (its tiles, or its group's: see context_share.cuh).
// Order   in each layer, redundant and held: QKV, O, K and V, gate/up, down
//                        otherwise:          QKV, K and V, O, gate/up, down
//         after the last layer: the LM head. The consumers fetch in the same order.
// All weights go through the one loop of load_step(), so that the code is short and copies do not
// wait for instruction fetches.
#pragma once

#include "kernels/ring/context_share.cuh"
#include "kernels/ring/weight_ring.cuh"

namespace mkbench::ring {

// K and V tiles of one layer, turn by turn: K of all tiles of the turn, then V. A half tile may
// bring rows at and beyond the context; the consumers mask them.
template <bool kSplit, typename L, bool kRecords>
__device__ __forceinline__ void load_context(RingWriter<L, kRecords>& ring,
                                             const ContextShare<kSplit>& share, const char* head) {
  constexpr int kTurn = kTilesPerTurn<L, kSplit>;
  const int tiles = share.tiles(), halves = share.halves();
#pragma unroll 1
  for (int first = 0; first < tiles; first += kTurn) {
    const int count = min(kTurn, tiles - first);
#pragma unroll 1
    for (int i = 0; i < 2 * count; ++i) {
      const int kind = i < count ? 0 : 1, t = first + (kind == 0 ? i : i - count);
      const bool whole = 2 * t + 1 < halves;
      const unsigned bytes = whole ? kSlotBytes : kHalfTileBytes;
      if (kSplit) {
        ring.load(head + tile_offset(t, share.member, kind), bytes);
      } else {
        // Not paced: 15 of 16 blocks find these rows in L2. A short context lies in the first
        // halves of neighbouring members' tiles.
        ring.open(bytes);
        ring.copy(head + tile_offset(0, 2 * t, kind), 0, kHalfTileBytes);
        if (whole)
          ring.copy(head + tile_offset(0, 2 * t + 1, kind), kHalfTileBytes, kHalfTileBytes);
        ring.close();
      }
    }
  }
}

// Records in the timeline which matrix begins with this slot, if one does. `run`: number of the run
// of slots in load_step(); `left`: slots that are left in it, this one included.
template <bool kSplit, typename L>
__device__ __forceinline__ void enter_slot(RingWriter<L, true>& ring, const LaunchParams& p,
                                           int run, int left, int step) {
  static_assert(L::kHeld, "the order of the slots below is that of held shapes");
  constexpr int kBefore = kSplit ? L::kQkvSlots : L::kQkvSlots + L::kOutSlots;
  const auto enter = [&](Phase phase, int layer) {
    ring.track.enter(SpanKind::kBody, phase, layer, step);
  };
  if (run > p.layers) {
    const int head = left - (step >= p.first_output ? L::head_slots(p.vocab) : 0);
    if (head == L::kDownSlots) enter(Phase::kDown, p.layers - 1);
    if (head == 0) enter(Phase::kLmHead, -1);
    return;
  }
  // Slots left in this run. The last layer's run lacks down and a next layer: add their slots.
  const int after = run == p.layers ? left + kBefore + L::kDownSlots : left;
  constexpr int kOutAt = kSplit ? L::kLayerSlots : L::kOutSlots;
  if (after == kOutAt) enter(Phase::kOProj, kSplit ? run - 1 : run);
  if (after == kBefore) enter(Phase::kQkv, run);
  if (after == kBefore + L::kDownSlots) enter(Phase::kDown, run - 1);
  if (after == kBefore + L::kDownSlots + L::kGateUpSlots) enter(Phase::kGateUp, run - 1);
}

// One step: runs of weight slots with K and V of each layer between them. The pace of the LM head
// begins with the last layer's down slots, because from there on few waits for other blocks follow.
template <bool kSplit, typename L, bool kRecords>
__device__ __forceinline__ void load_step(RingWriter<L, kRecords>& ring, const LaunchParams& p,
                                          const Block& block, int step) {
  constexpr size_t kStride = static_cast<size_t>(kSlotBytes) * kBlocks;
  // A held shape keeps O's weights in registers while attention runs; a streamed shape fetches them
  // after attention.
  constexpr int kBefore = kSplit || !L::kHeld ? L::kQkvSlots : L::kQkvSlots + L::kOutSlots;
  const ContextShare<kSplit> share{p.position + step, block.member()};
  const size_t head_bytes = kv_head_bytes(p.max_context);
  const char* head = p.kv + static_cast<size_t>(block.group()) * head_bytes;
  const char* from = p.stream + slot_offset(0, block.index);
  int left = kBefore;
#pragma unroll 1
  for (int run = 0;; ++run) {
#pragma unroll 1
    for (; left > 0; --left, from += kStride) {
      if constexpr (kRecords) enter_slot<kSplit>(ring, p, run, left, step);
      ring.load(from, kSlotBytes);
    }
    if (run > p.layers) return;
    if (run == p.layers) {
      ring.set_pace(p.head_pace);
      left = L::kDownSlots + (step >= p.first_output ? L::head_slots(p.vocab) : 0);
      continue;
    }
    if (run == 0 && step > 0) {
      ring.track.enter(SpanKind::kExchange, Phase::kAttention, run, step);
      ring.wait_for_rows(step);
    }
    ring.track.enter(SpanKind::kBody, Phase::kAttention, run, step);
    load_context<kSplit>(ring, share, head);
    head += kGroups * head_bytes;
    left = run + 1 < p.layers ? L::kLayerSlots : L::kLayerSlots - kBefore - L::kDownSlots;
  }
}

__device__ __forceinline__ StreamPace pace_at(const LaunchParams& p, int position) {
  StreamPace pace = p.paces[0].pace;
#pragma unroll
  for (int i = 1; i < kPaceRanges; ++i) {
    if (position >= p.paces[i - 1].until) pace = p.paces[i].pace;
  }
  return pace;
}

template <bool kRecords, typename L>
__device__ __forceinline__ void run_loader(const LaunchParams& p, Shared<L>& s, const char* slots,
                                           const Block& block) {
  RingWriter<L, kRecords> ring{p,
                               s,
                               opaque(ptx::shared_address(slots)),
                               opaque(ptx::shared_address(s.full)),
                               opaque(ptx::shared_address(s.empty)),
                               ptx::evict_first_policy()};
  const int number = static_cast<int>(blockIdx.x) * kTracks + kLoaderTrack;
  ring.track.begin(p.timeline, number, true);
  ring.next_issue = ptx::sm_cycles_low();
#pragma unroll 1
  for (int step = 0; step < p.steps; ++step) {
    ring.position = p.position + step;
    ring.set_pace(pace_at(p, ring.position));
    if (p.position + step >= p.split_from) {
      load_step<true>(ring, p, block, step);
    } else {
      load_step<false>(ring, p, block, step);
    }
  }
  ring.track.end(number);
}

}  // namespace mkbench::ring
