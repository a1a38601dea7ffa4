// Where every weight and every KV element of the ring megakernel lies: pure functions of indices,
// the same on host and device.
//
// The grid is 128 blocks, one on each multiprocessor. Group g is the 16 blocks that compute kv head
// g and its two query heads; member m is a block's place in its group. For each token a block reads
// one linear stream of slots, 16 KiB each: in every layer QKV (4 slots), O (2), gate/up (6) and
// down (3), then the rows of the LM head. The columns of the O- and down-projection are divided
// over the groups, so that the attention result and the SwiGLU vector that they multiply stay
// inside a group.
#pragma once

#include <cstddef>

#include "kernels/partition.h"
#include "references/model_shape.h"

namespace mkbench::ring {

inline constexpr ModelShape kShape = kQwen3_0_6B;  // layers and vocabulary are run-time values
inline constexpr int kGroups = kShape.kv_heads;
inline constexpr int kMembers = 16;  // blocks of a group
inline constexpr int kBlocks = kGroups * kMembers;
inline constexpr int kConsumerWarps = 16;
inline constexpr int kHidden = kShape.hidden;
inline constexpr int kHeadDim = kShape.head_dim;

inline constexpr int kSlotBytes = 16384;
inline constexpr int kFragmentBytes = 512;  // an A fragment of mma: 16 bytes of each lane
inline constexpr int kMaxLayers = 64;

// A block's share of a layer.
inline constexpr int kQkvRows = kShape.qkv_width() / kBlocks;      // 32
inline constexpr int kOutRows = kHidden / kMembers;                // 64: rows of O and of down
inline constexpr int kOutColumns = kShape.gqa_group() * kHeadDim;  // 256: O's, the group's heads
inline constexpr int kUnits = kShape.intermediate / kBlocks;       // 24 SwiGLU units
inline constexpr int kGroupUnits = kUnits * kMembers;              // 384: down's columns
inline constexpr int kWarpColumns = kHidden / kConsumerWarps;      // 64: a warp's, QKV and gate/up

inline constexpr int kQkvSlots = 4, kOutSlots = 2, kGateUpSlots = 6, kDownSlots = 3;
inline constexpr int kLayerSlots = kQkvSlots + kOutSlots + kGateUpSlots + kDownSlots;
static_assert(kQkvRows * kHidden * 2 == kQkvSlots * kSlotBytes);
static_assert(kOutRows * kOutColumns * 2 == kOutSlots * kSlotBytes);
static_assert(2 * kUnits * kHidden * 2 == kGateUpSlots * kSlotBytes);
static_assert(kOutRows * kGroupUnits * 2 == kDownSlots * kSlotBytes);
static_assert(kShape.gqa_group() == 2 && kHeadDim == 128 && kHidden == 1024 && kUnits == 24,
              "the fragment maps below are made for Qwen3-0.6B's layer");

// LM head: a slot holds 8 whole rows; a block has neighbouring rows.
inline constexpr int kRowsPerSlot = kSlotBytes / (2 * kHidden);
MKBENCH_HD constexpr int head_rows(int vocab) { return (vocab + kBlocks - 1) / kBlocks; }
MKBENCH_HD constexpr int head_slots(int vocab) {
  return (head_rows(vocab) + kRowsPerSlot - 1) / kRowsPerSlot;
}
MKBENCH_HD constexpr int stream_slots(int layers, int vocab) {
  return layers * kLayerSlots + head_slots(vocab);
}

// Bytes from the stream's start to `slot` of `block`. The 128 blocks' slots of the same number lie
// side by side.
MKBENCH_HD constexpr size_t slot_offset(int slot, int block) {
  return (static_cast<size_t>(slot) * kBlocks + static_cast<size_t>(block)) * kSlotBytes;
}

// Neighbouring blocks of the grid are dealt to different groups: 16 neighbours share a GPC, and as
// one group they would compete for its bandwidth (3-8 % slower on an H200 with a split context).
MKBENCH_HD constexpr int group_of(int block_index) { return block_index % kGroups; }
MKBENCH_HD constexpr int member_of(int block_index) { return block_index / kGroups; }
// The place of a block's words and weights among those of all blocks: group by group.
MKBENCH_HD constexpr int place_of(int block_index) {
  return group_of(block_index) * kMembers + member_of(block_index);
}

// One element of a layer's weights.
enum class Tensor : int { kQ, kK, kV, kO, kGate, kUp, kDown };
struct WeightIndex {
  Tensor tensor;
  int row;     // output feature
  int column;  // input feature
};

// Which weight lies at bf16 element `element` (0 .. 8191) of `slot` (0 .. kLayerSlots - 1) in the
// layer's stream of group g, member m. A slot is 16 warps x 2 fragments x 32 lanes x 8 elements;
// element e of a lane is half e % 2 of register e / 2 of the A operand of mma.m16n8k16. The order
// of k is permuted, so that a lane's B operands are neighbouring activations.
MKBENCH_HD constexpr WeightIndex weight_at(int g, int m, int slot, int element) {
  const int warp = element / 512, lane = element / 8 % 32, e = element % 8;
  const int row8 = lane / 4, j = lane % 4, reg = e / 2, half = e % 2;
  // A's registers 0 .. 3 hold (row, k), (row + 8, k), (row, k + 8), (row + 8, k + 8).
  const int low = reg % 2, high = reg / 2;
  if (slot < kQkvSlots) {
    const int fragment = 2 * slot + element / 256 % 2;
    const int row = fragment % 2 * 16 + row8 + 8 * low;
    const int column = kWarpColumns * warp + 16 * j + 4 * (fragment / 2) + 2 * high + half;
    // Dimensions d and d + 64 of a head, which RoPE pairs, belong to one block.
    const int d = 16 * (m % 4) + row % 16 + 64 * (row / 16);
    if (m / 4 < 2) return {Tensor::kQ, (2 * g + m / 4) * kHeadDim + d, column};
    return {m / 4 == 2 ? Tensor::kK : Tensor::kV, g * kHeadDim + d, column};
  }
  slot -= kQkvSlots;
  if (slot < kOutSlots) {
    const int fragment = 2 * slot + element / 256 % 2;
    const int column = kOutColumns * g + kHeadDim * high + 8 * warp + 2 * j + half;
    return {Tensor::kO, kOutRows * m + 16 * fragment + row8 + 8 * low, column};
  }
  slot -= kOutSlots;
  if (slot < kGateUpSlots) {
    const int fragment = 2 * slot + element / 256 % 2;
    const int unit = kUnits * (kMembers * g + m) + fragment % 3 * 8 + row8;
    const int column = kWarpColumns * warp + 16 * j + 4 * (fragment / 3) + 2 * high + half;
    return {low == 0 ? Tensor::kGate : Tensor::kUp, unit, column};
  }
  slot -= kGateUpSlots;
  const int fragment = 2 * slot + element / 256 % 2;
  const int first_column = kGroupUnits * g + kUnits * warp;
  if (fragment < 4) {  // the first 16 of the warp's 24 columns, in fragments of mma_k16
    return {Tensor::kDown, kOutRows * m + 16 * fragment + row8 + 8 * low,
            first_column + 4 * j + 2 * high + half};
  }
  // The last 8 columns: 16 bytes of a lane hold two fragments of mma_k8.
  return {Tensor::kDown, kOutRows * m + 16 * (2 * (fragment - 4) + high) + row8 + 8 * low,
          first_column + 16 + 2 * j + half};
}

// Which row and column of the LM head lies at `element` of LM-head slot `slot` of `block`
// (= group * kMembers + member). row < 0: padding.
struct HeadIndex {
  int row, column;
};
MKBENCH_HD constexpr HeadIndex head_at(int vocab, int block, int slot, int element) {
  const int local = slot * kRowsPerSlot + element / kHidden;
  const int row = block * head_rows(vocab) + local;
  const bool real = local < head_rows(vocab) && row < vocab;
  return {real ? row : -1, element % kHidden};
}

// KV cache. A tile is 64 rows that belong to one block: 16 KiB of K and 16 KiB of V. It holds 32
// neighbouring positions (the first half) and the 32 positions 512 further on (the second half), so
// that the 16 blocks of a group share a short context in pieces of 32 and yet fetch a long one in
// whole slots. A round of 1024 positions is one tile of each block; its 16 K tiles lie side by
// side, then its 16 V tiles.
inline constexpr int kTileRows = 64;
inline constexpr int kHalfTileRows = 32;
inline constexpr int kHalfTileBytes = kSlotBytes / 2;
inline constexpr int kRoundPositions = kTileRows * kMembers;  // 1024: one tile of each block

MKBENCH_HD constexpr int kv_rounds(int max_context) {
  return (max_context + kRoundPositions - 1) / kRoundPositions;
}
// Bytes of K and V of one layer and kv head.
MKBENCH_HD constexpr size_t kv_head_bytes(int max_context) {
  return static_cast<size_t>(kv_rounds(max_context)) * kMembers * 2 * kSlotBytes;
}
MKBENCH_HD constexpr int tile_member(int position) { return position / kHalfTileRows % kMembers; }
MKBENCH_HD constexpr int tile_row(int position) {
  return position % kHalfTileRows + position / (kRoundPositions / 2) % 2 * kHalfTileRows;
}
// Bytes from a head's start to the tile of `member` in `round`; kind 0 = K, 1 = V.
MKBENCH_HD constexpr size_t tile_offset(int round, int member, int kind) {
  return (static_cast<size_t>(round * 2 + kind) * kMembers + static_cast<size_t>(member)) *
         kSlotBytes;
}
// Bytes from a K tile's start to (row, d). The tile is A fragments of mma: 16 rows a warp, with
// dimensions permuted like the activations.
MKBENCH_HD constexpr int k_offset(int row, int d) {
  return (row / 16 * 8 + d / 32 * 2 + d / 4 % 2) * kFragmentBytes +
         (row % 8 * 4 + d % 32 / 8) * 16 + (d / 2 % 2 * 2 + row / 8 % 2) * 4 + d % 2 * 2;
}
// Bytes from a V tile's start to (row, d). Each half tile is B fragments of two k steps of 16 rows,
// 8 dimensions a warp.
MKBENCH_HD constexpr int v_offset(int row, int d) {
  return row / 32 * kHalfTileBytes + d / 8 * kFragmentBytes + (d % 8 * 4 + row % 8 / 2) * 16 +
         row / 16 % 2 * 8 + row / 8 % 2 * 4 + row % 2 * 2;
}
// The inverse of k_offset() and v_offset() inside a half tile: which row (0 .. 31) and dimension
// the bf16 value number `element` from the half's start is. kind 0 = K, 1 = V.
struct HalfIndex {
  int row, d;
};
MKBENCH_HD constexpr HalfIndex half_index(int kind, int element) {
  const int lane = element / 8 % 32, low = element % 2, reg = element / 2 % 4;
  if (kind == 0) {
    const int fragment = element / 256 % 8;
    return {element / 2048 * 16 + lane / 4 + 8 * (reg % 2),
            fragment / 2 * 32 + lane % 4 * 8 + fragment % 2 * 4 + reg / 2 * 2 + low};
  }
  return {reg / 2 * 16 + reg % 2 * 8 + lane % 4 * 2 + low, element / 256 * 8 + lane / 4};
}

// Bytes from a head's start to one element; kind 0 = K, 1 = V.
MKBENCH_HD constexpr size_t kv_offset(int position, int d, int kind) {
  const int row = tile_row(position);
  return tile_offset(position / kRoundPositions, tile_member(position), kind) +
         static_cast<size_t>(kind == 0 ? k_offset(row, d) : v_offset(row, d));
}

}  // namespace mkbench::ring
