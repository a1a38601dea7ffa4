// Where every weight and every KV element of the ring megakernel lies: pure functions of indices,
// the same on host and device.
//
// The grid is 128 blocks, one on each multiprocessor. Group g is the 16 blocks that compute kv head
// g and its query heads; member m is a block's place in its group. For each token a block reads one
// linear stream of slots, 16 KiB each: in every layer QKV, O, gate/up and down, then the rows of the
// LM head. The columns of the O- and down-projection are divided over the groups, so that the
// attention result and the SwiGLU vector that they multiply stay inside a group.
//
// Layout<kRow> derives all of this from a layer shape (layer_shapes.h) and its plan (layer_plan.h).
#pragma once

#include <cstddef>

#include "kernels/ring/layer_plan.h"

namespace mkbench::ring {

// Bytes from the stream's start to `slot` of `block`. The 128 blocks' slots of the same number lie
// side by side.
MKBENCH_HD constexpr size_t slot_offset(int slot, int block) {
  return (static_cast<size_t>(slot) * kBlocks + static_cast<size_t>(block)) * kSlotBytes;
}

// Neighbouring blocks of the grid are dealt to different groups: 16 neighbours share a GPC, and as
// one group they would compete for its bandwidth (3-8 % slower on an H200 with a split context).
MKBENCH_HD constexpr int group_of(int block_index) { return block_index % kGroups; }
MKBENCH_HD constexpr int member_of(int block_index) { return block_index / kGroups; }
// The place of a block's words and weights in arrays over all blocks, which are ordered by group.
MKBENCH_HD constexpr int place_of(int block_index) {
  return group_of(block_index) * kMembers + member_of(block_index);
}

// One element of a layer's weights. row < 0: padding.
enum class Tensor : int { kQ, kK, kV, kO, kGate, kUp, kDown };
struct WeightIndex {
  Tensor tensor;
  int row;     // output feature
  int column;  // input feature
};

// A row and column of the LM head. row < 0: padding.
struct HeadIndex {
  int row, column;
};

// A bf16 element of a fragment, i.e. of the A operand of mma.m16n8k16. Element e of a lane is half
// e % 2 of register e / 2; registers 0 .. 3 hold (row, k), (row + 8, k), (row, k + 8),
// (row + 8, k + 8). The order of k is permuted, so that a lane's B operands are neighbouring
// activations.
struct FragmentElement {
  int warp, fragment;  // fragment: counted per warp from the run's first slot on
  int row8, j, reg, half;
  // `element` (0 .. 8191) of slot number `slot` of a run of slots: 16 warps x 2 fragments x 32 lanes
  // x 8 elements.
  MKBENCH_HD constexpr FragmentElement(int slot, int element)
      : warp(element / 512),
        fragment(kWarpFragments * slot + element / 256 % kWarpFragments),
        row8(element / 8 % 32 / 4),
        j(element / 8 % 4),
        reg(element % 8 / 2),
        half(element % 2) {}
  MKBENCH_HD constexpr int low() const { return reg % 2; }
  MKBENCH_HD constexpr int high() const { return reg / 2; }
  MKBENCH_HD constexpr int row() const { return row8 + 8 * low(); }
  // The element's place (0 .. 15) among 16 neighbouring columns.
  MKBENCH_HD constexpr int column16() const { return 4 * j + 2 * high() + half; }
};

template <int kRow>
struct Layout {
  static constexpr int kIndex = kRow;
  static constexpr ModelShape kShape = kLayerShapes.shapes[kRow];
  static constexpr int kHidden = kShape.hidden;
  static constexpr LayoutFits kFits = layout_fits(kShape);
  static_assert(kFits.kv_heads && kFits.head_dim);
  static_assert(kFits.heads, "attention's operands hold the heads in pairs");
  static_assert(kFits.hidden && kFits.intermediate, "warps and blocks get whole tiles");
  static_assert(kFits.rounds, "rounds have whole tiles and fill whole slots");
  static_assert(kFits.room, "a block's shared memory holds the ring and the shape's vectors");

  // See LayerPlan in layer_plan.h.
  static constexpr LayerPlan kPlan = plan_of(kShape);
  static constexpr bool kHeld = kPlan.held;
  static_assert(kHeld == (kRow == kHeldRow));
  static constexpr int kHeads = kPlan.heads;
  static constexpr int kHeadPairs = kPlan.head_pairs;
  static constexpr int kVectors = kPlan.vectors;
  static constexpr int kQkvRows = kPlan.qkv_rows;
  static constexpr int kOutRows = kPlan.out_rows;
  static constexpr int kOutColumns = kPlan.out_columns;
  static constexpr int kUnits = kPlan.units;
  static constexpr int kGroupUnits = kPlan.group_units();
  static constexpr int kWarpColumns = kPlan.warp_columns;

  // --- streamed shapes
  static constexpr int kHiddenSteps = kPlan.hidden_steps;
  static constexpr int kUnitTiles = kPlan.unit_tiles;
  static constexpr bool kHalfTile = kPlan.half_tile;
  static constexpr int kRoundUnits = ring::kRoundUnits;
  static constexpr Rounds kQkvRound = kPlan.qkv;
  static constexpr Rounds kGateUpRound = kPlan.gate_up;
  static constexpr int kHalfTileFragments = kPlan.half_tile_fragments();
  static constexpr int kOutTiles = kPlan.out_tiles;
  static constexpr Rounds kOutRound = kPlan.out;
  static constexpr int kDownParts = kPlan.down_parts;
  static constexpr int kDownColumns = kPlan.down_columns;
  static constexpr Rounds kDownRound = kPlan.down;
  static constexpr Rounds kHeadRound = kPlan.head;

  static constexpr int kQkvSlots = kPlan.qkv_slots();
  static constexpr int kOutSlots = kPlan.out_slots();
  static constexpr int kGateUpSlots = kPlan.gate_up_slots();
  static constexpr int kDownSlots = kPlan.down_slots();
  static constexpr int kLayerSlots = kQkvSlots + kOutSlots + kGateUpSlots + kDownSlots;

  // --- a block's shared memory
  static constexpr int kPartialRows = kPlan.partial_rows();
  static constexpr int kInputWords = kPlan.input_words();
  static constexpr int kSwigluStride = kHeld ? 32 : kUnits;  // words of a block, padding included
  static constexpr int kChunkSlots = kPlan.chunk_slots();
  static constexpr int kStagingBytes = static_cast<int>(kPlan.staging_bytes());
  static constexpr int kLeastRingSlots = kPlan.least_ring_slots();

  // --- LM head: a block has neighbouring rows. Held: a slot holds 8 whole rows. Streamed: rounds of
  // 48 rows.
  static constexpr int kRowsPerSlot = kSlotBytes / (2 * kHidden);
  MKBENCH_HD static constexpr int head_rows(int vocab) { return (vocab + kBlocks - 1) / kBlocks; }
  MKBENCH_HD static constexpr int head_rounds(int vocab) {
    constexpr int kRows = kHeadRound.rows();
    return (head_rows(vocab) + kRows - 1) / kRows;
  }
  MKBENCH_HD static constexpr int head_slots(int vocab) {
    constexpr int kRoundSlots = kHeadRound.slots();
    if (!kHeld) return head_rounds(vocab) * kRoundSlots;
    return (head_rows(vocab) + kRowsPerSlot - 1) / kRowsPerSlot;
  }
  MKBENCH_HD static constexpr int stream_slots(int layers, int vocab) {
    return layers * kLayerSlots + head_slots(vocab);
  }

  // The vector (0 .. kHeads - 1: q of that head of the group, then k, then v) and dimension of a
  // block's QKV row. Dimensions d and d + 64 of a head, which RoPE pairs, belong to one block.
  struct QkvRow {
    int vector, d;
  };
  MKBENCH_HD static constexpr QkvRow qkv_row(int m, int row) {
    if (kHeld) return {m / 4, 16 * (m % 4) + row % 16 + 64 * (row / 16)};
    const int eight = kQkvRows / 16 * m + row / 16;  // index among the group's runs of 8 pairs
    return {eight / 8, 8 * (eight % 8) + row % 8 + 64 * (row / 8 % 2)};
  }
  // The place of a row's word among the block's words. In a streamed shape both words of a pair are neighbours.
  MKBENCH_HD static constexpr int qkv_word(int row) {
    if (kHeld) return row;
    return 2 * (8 * (row / 16) + row % 8) + row / 8 % 2;
  }
  MKBENCH_HD static constexpr WeightIndex qkv_weight(int g, int m, int row, int column) {
    const QkvRow at = qkv_row(m, row);
    if (at.vector < kHeads) {
      return {Tensor::kQ, (kHeads * g + at.vector) * kHeadDim + at.d, column};
    }
    return {at.vector == kHeads ? Tensor::kK : Tensor::kV, g * kHeadDim + at.d, column};
  }

  // Which weight lies at bf16 element `element` (0 .. 8191) of `slot` (0 .. kLayerSlots - 1) in the
  // layer's stream of group g, member m.
  MKBENCH_HD static constexpr WeightIndex weight_at(int g, int m, int slot, int element) {
    if (slot < kQkvSlots) return qkv_at(g, m, {slot, element});
    slot -= kQkvSlots;
    if (slot < kOutSlots) return out_at(g, m, {slot, element});
    slot -= kOutSlots;
    if (slot < kGateUpSlots) return gate_up_at(g, m, {slot, element});
    return down_at(g, m, {slot - kGateUpSlots, element});
  }

  // Which row and column of the LM head lies at `element` of LM-head slot `slot` of `block`
  // (= group * kMembers + member).
  MKBENCH_HD static constexpr HeadIndex head_at(int vocab, int block, int slot, int element) {
    int local = slot * kRowsPerSlot + element / kHidden, column = element % kHidden;
    if (!kHeld) {
      const FragmentElement x(slot, element);
      const Place at = place_in<kHeadRound>(x.fragment);
      local = 16 * at.tile + x.row();
      column = kWarpColumns * x.warp + 16 * at.step + x.column16();
    }
    const int row = block * head_rows(vocab) + local;
    const bool real = local < head_rows(vocab) && row < vocab;
    return {real ? row : -1, column};
  }

 private:
  struct Place {
    int tile, step;
  };
  // Tile and step of a warp's fragment, unless it holds the last 8 columns (eight_more).
  template <Rounds kRounds>
  MKBENCH_HD static constexpr Place place_in(int fragment) {
    constexpr int kTiles = kRounds.tiles, kEach = kTiles * kRounds.steps;
    const int in_round = fragment % kEach;
    return {fragment / kEach * kTiles + in_round % kTiles, in_round / kTiles};
  }

  MKBENCH_HD static constexpr WeightIndex qkv_at(int g, int m, const FragmentElement& x) {
    if (kHeld) {
      return qkv_weight(
          g, m, x.fragment % 2 * 16 + x.row(),
          kWarpColumns * x.warp + 16 * x.j + 4 * (x.fragment / 2) + 2 * x.high() + x.half);
    }
    const Place at = place_in<kQkvRound>(x.fragment);
    return qkv_weight(g, m, 16 * at.tile + x.row(),
                      kWarpColumns * x.warp + 16 * at.step + x.column16());
  }
  // A k-step of O covers 8 dimensions of each of two heads.
  MKBENCH_HD static constexpr WeightIndex out_at(int g, int m, const FragmentElement& x) {
    const Place at = kHeld ? Place{x.fragment, 0} : place_in<kOutRound>(x.fragment);
    const int column =
        kOutColumns * g + kHeadDim * (2 * at.step + x.high()) + 8 * x.warp + 2 * x.j + x.half;
    return {Tensor::kO, kOutRows * m + 16 * at.tile + x.row(), column};
  }
  MKBENCH_HD static constexpr WeightIndex gate_up_at(int g, int m, const FragmentElement& x) {
    const int first_unit = kUnits * (kMembers * g + m), first_column = kWarpColumns * x.warp;
    if (kHeld) {
      return {x.low() == 0 ? Tensor::kGate : Tensor::kUp, first_unit + x.fragment % 3 * 8 + x.row8,
              first_column + 16 * x.j + 4 * (x.fragment / 3) + 2 * x.high() + x.half};
    }
    constexpr int kWhole = kGateUpRound.rounds * kGateUpRound.fragments();
    const int left = x.fragment - kWhole;
    if (left < 0) {
      const Place at = place_in<kGateUpRound>(x.fragment);
      return {x.low() == 0 ? Tensor::kGate : Tensor::kUp, first_unit + 8 * at.tile + x.row8,
              first_column + 16 * at.step + x.column16()};
    }
    // The half tile: 4 gate rows and 4 up rows; a fragment holds two steps of it.
    const int step = 2 * left + x.reg / 2;
    if (step >= kHiddenSteps) return {Tensor::kGate, -1, 0};
    return {x.row8 < 4 ? Tensor::kGate : Tensor::kUp, first_unit + 8 * kUnitTiles + x.row8 % 4,
            first_column + 16 * step + 4 * x.j + 2 * (x.reg % 2) + x.half};
  }
  MKBENCH_HD static constexpr WeightIndex down_at(int g, int m, const FragmentElement& x) {
    constexpr int kColumnWarps = kConsumerWarps / kDownParts;
    const int first_column = kGroupUnits * g + kDownColumns * (x.warp % kColumnWarps);
    const int first_row = kOutRows * m + kOutRows / kDownParts * (x.warp / kColumnWarps);
    if (kHeld && x.fragment < 4) {  // the first 16 of the warp's 24 columns
      return {Tensor::kDown, first_row + 16 * x.fragment + x.row(), first_column + x.column16()};
    }
    constexpr int kWhole = kHeld ? 4 : kDownRound.tiles * kDownRound.steps;
    constexpr bool kAllWhole = !kHeld && !kDownRound.eight_more;
    if (!kHeld && (kAllWhole || x.fragment < kWhole)) {
      const Place at = place_in<kDownRound>(x.fragment);
      return {Tensor::kDown, first_row + 16 * at.tile + x.row(),
              first_column + 16 * at.step + x.column16()};
    }
    // The last 8 columns: 16 bytes of a lane hold two fragments of mma_k8.
    const int tile = 2 * (x.fragment - kWhole) + x.high();
    if (tile >= kOutTiles / kDownParts) return {Tensor::kDown, -1, 0};
    return {Tensor::kDown, first_row + 16 * tile + x.row(),
            first_column + kDownColumns / 16 * 16 + 2 * x.j + x.half};
  }
};

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
// The inverse of k_offset() and v_offset() inside a half tile: row (0 .. 31) and dimension of the
// bf16 value number `element` of the half. kind 0 = K, 1 = V.
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
