// The loader: one thread that streams a block's whole launch through the ring.
// Reads  stream (slots of this block), kv (tiles of this block, or of its group).
// Order  per layer, redundant: QKV, O, K and V, gate/up, down; split: QKV, K and V, O, gate/up,
//        down; after the last layer the LM head. The consumers fetch in the same order.
#pragma once

#include "kernels/ring/context_share.cuh"
#include "kernels/ring/weight_ring.cuh"

namespace mkbench::ring {

// K and V tiles of one layer, turn by turn. Rows at and beyond the context may be loaded with their
// half tile; consumers mask them.
template <bool kSplit>
__device__ __forceinline__ bool load_context(RingWriter& ring, const ContextShare<kSplit>& share,
                                             const char* head) {
  constexpr int kTurn = ContextShare<kSplit>::kTilesPerTurn;
  const int tiles = share.tiles(), halves = share.halves();
#pragma unroll 1
  for (int first = 0; first < tiles; first += kTurn) {
#pragma unroll 1
    for (int kind = 0; kind < 2; ++kind) {
#pragma unroll 1
      for (int t = first; t < min(first + kTurn, tiles); ++t) {
        const bool whole = 2 * t + 1 < halves;
        if (!ring.open(whole ? kSlotBytes : kHalfTileBytes)) return false;
        if (kSplit) {
          ring.keep_pace();
          ring.copy(head + tile_offset(t, share.member, kind), 0,
                    whole ? kSlotBytes : kHalfTileBytes);
        } else {
          // Not paced: 15 of 16 blocks find these rows in L2. Short contexts lie in the first
          // halves of neighbouring tiles.
          ring.copy(head + tile_offset(0, 2 * t, kind), 0, kHalfTileBytes);
          if (whole) {
            ring.copy(head + tile_offset(0, 2 * t + 1, kind), kHalfTileBytes, kHalfTileBytes);
          }
        }
        ring.close();
      }
    }
  }
  return true;
}

template <bool kSplit>
__device__ __forceinline__ bool load_layers(RingWriter& ring, const LaunchParams& p,
                                            const Block& block, int step, const char*& from) {
  constexpr size_t kStride = static_cast<size_t>(kSlotBytes) * kBlocks;
  constexpr int kBefore = kSplit ? kQkvSlots : kQkvSlots + kOutSlots;
  const ContextShare<kSplit> share{p.position + step, block.member()};
  const size_t head_bytes = kv_head_bytes(p.max_context);
  const char* head = p.kv + static_cast<size_t>(block.group()) * head_bytes;
#pragma unroll 1
  for (int layer = 0; layer < p.layers; ++layer) {
#pragma unroll 1
    for (int k = 0; k < kBefore; ++k, from += kStride) {
      if (!ring.load_slot(from)) return false;
    }
    if (layer == 0 && step > 0 && share.context > 0) {
      const Site site{Phase::kAttention, 0, p.position + step};
      wait_until(p, site, step, [&](unsigned& seen) {
        seen = ring.s.rows_seen;
        return ring.s.rows_seen >= step || ring.s.ended != 0;
      });
      ring.ended = ring.s.ended != 0;
      if (ring.ended) return false;
      ptx::proxy_fence();
    }
    if (!load_context<kSplit>(ring, share, head)) return false;
    head += kGroups * head_bytes;
#pragma unroll 1
    for (int k = kBefore; k < kLayerSlots; ++k, from += kStride) {
      // The LM head follows: no exchange waits for its stream any more.
      if (layer == p.layers - 1 && k == kLayerSlots - kDownSlots) ring.pace = p.head_pace;
      if (!ring.load_slot(from)) return false;
    }
  }
  return true;
}

__device__ __forceinline__ StreamPace pace_at(const LaunchParams& p, int position) {
  StreamPace pace = p.paces[0].pace;
#pragma unroll
  for (int i = 1; i < kPaceRanges; ++i) {
    if (position >= p.paces[i - 1].until) pace = p.paces[i].pace;
  }
  return pace;
}

__device__ __forceinline__ void run_loader(const LaunchParams& p, Shared& s, const char* slots,
                                           const Block& block) {
  RingWriter ring{p,
                  s,
                  ptx::shared_address(slots),
                  ptx::shared_address(s.full),
                  ptx::shared_address(s.empty),
                  ptx::evict_first_policy()};
  ring.next_issue = ptx::sm_cycles_low();
  constexpr size_t kStride = static_cast<size_t>(kSlotBytes) * kBlocks;
  const int slots_of_head = head_slots(p.vocab);
#pragma unroll 1
  for (int step = 0; step < p.steps; ++step) {
    const char* from = p.stream + slot_offset(0, block.index);
    ring.pace = pace_at(p, p.position + step);
    const bool more = p.position + step >= p.split_from
                          ? load_layers<true>(ring, p, block, step, from)
                          : load_layers<false>(ring, p, block, step, from);
    if (!more) break;
    if (step < p.first_output) continue;
    ring.pace = {p.head_pace.copies_in_flight, 0};
#pragma unroll 1
    for (int k = 0; k < slots_of_head; ++k, from += kStride) {
      if (!ring.load_slot(from)) break;
    }
    if (ring.ended) break;
  }
  if (ring.ended) ring.drain();
}

}  // namespace mkbench::ring
