// How ring's blocks and warps divide a layer of a given shape, and whether they can. layout_fits() alone
// decides which shapes have a Layout: layout.h asserts it, rows.h rejects the other shapes by it.
//
// If a warp's share of each phase fits into its registers, the shape is held (Qwen3-0.6B's): a phase
// fetches all of its weights before it waits for its input. Otherwise the shape is streamed: a phase
// consists of rounds, and a round of chunks (streamed/phases.cuh).
#pragma once

#include <cstdint>

#include "kernels/layer_shapes.h"
#include "kernels/partition.h"

namespace mkbench::ring {

// These numbers hold for every layer shape.
inline constexpr int kGroups = 8;    // kv heads
inline constexpr int kMembers = 16;  // blocks of a group
inline constexpr int kBlocks = kGroups * kMembers;
inline constexpr int kConsumerWarps = 16;
inline constexpr int kHeadDim = 128;

inline constexpr int kSlotBytes = 16384;
inline constexpr int kFragmentBytes = 512;  // an A fragment of mma: 16 bytes of each lane
inline constexpr int kWarpFragments = 2;    // fragments per warp in a slot
inline constexpr int kMaxLayers = 64;

// Must divide `hidden`: then a warp's columns are an even number of 16-column steps, and its rounds
// of 3 tiles fill whole slots.
inline constexpr int kHiddenStep = 2 * 16 * kConsumerWarps;
// A block's SwiGLU units are a multiple of kRoundUnits, or such a multiple plus kUnitRest.
inline constexpr int kRoundUnits = 24, kUnitRest = 4;

// The ring needs bulk copies, and barriers that count the bytes of copies.
inline constexpr int kLeastComputeMajor = 9;

// Shared memory of a block: 227 KiB, from sm_120 on 99 KiB. A build with MKBENCH_BLOCK_KIB has that on
// every card: with 99, the layouts of sm_120 run on a Hopper card, too.
inline constexpr int kLargeBlock = 227 * 1024, kSmallBlock = 99 * 1024;
MKBENCH_HD constexpr int shared_limit([[maybe_unused]] int compute_major) {
#ifdef MKBENCH_BLOCK_KIB
  static_assert(MKBENCH_BLOCK_KIB >= 99 && MKBENCH_BLOCK_KIB <= 227);
  return (MKBENCH_BLOCK_KIB)*1024;
#else
  return compute_major >= 12 ? kSmallBlock : kLargeBlock;
#endif
}

// How a streamed phase takes its weights: round by round. In a round a warp multiplies `tiles` tiles
// of 16 rows with `steps` times 16 columns, in fragments ordered by step, then by tile; it fetches
// chunk() fragments at a time. The warps divide the rows into `parts` parts, and the columns into
// kConsumerWarps / parts. eight_more: 8 columns are left after the last step, and the last fragments
// hold them, for two tiles each.
struct Rounds {
  int rounds, tiles, steps, parts = 1;
  bool eight_more = false;
  MKBENCH_HD constexpr int fragments() const {  // per warp and round
    return tiles * steps + (eight_more ? (tiles + 1) / 2 : 0);
  }
  MKBENCH_HD constexpr int chunk() const {  // the largest even divisor up to 8; 10 for 10 fragments
    int most = 2;
    for (int c = 4; c <= (fragments() == 10 ? 10 : 8); c += 2) {
      if (fragments() % c == 0) most = c;
    }
    return most;
  }
  MKBENCH_HD constexpr int rows() const { return 16 * tiles; }  // per warp and round
  MKBENCH_HD constexpr int slots() const { return rounds * fragments() / kWarpFragments; }
};

// The held layer shape, as an index in kLayerShapes; the talker of Qwen3-TTS has this shape, too.
inline constexpr int kHeldRow = layer_shape_index("qwen3-0.6b");

constexpr int most_of(int a, int b) { return a > b ? a : b; }

struct LayerPlan {
  ModelShape shape;
  bool held;
  int heads, head_pairs;  // query heads of a group
  int vectors;            // q of each head, k and v

  // A block's share of a layer.
  int qkv_rows;
  int out_rows;      // rows of O and of down
  int out_columns;   // columns of O: the group's heads
  int units;         // SwiGLU units
  int warp_columns;  // columns of QKV and gate/up per warp

  // For streamed shapes only.
  int hidden_steps;
  int unit_tiles;  // tiles of 8 gate rows and 8 up rows
  bool half_tile;  // 4 units are left after the tiles
  int out_tiles;
  // If a block's units are no multiple of 16, each half of the warps takes half of down's rows and
  // twice the columns.
  int down_parts;
  int down_columns;  // per warp
  Rounds qkv, out, gate_up, down;
  Rounds head;  // one round; how many there are depends on the vocabulary

  constexpr int group_units() const { return units * kMembers; }  // columns of down
  constexpr int half_tile_fragments() const {
    return half_tile ? (hidden_steps / 2 + 1) / 2 * 2 : 0;
  }

  // Slots of each phase in a block's stream.
  constexpr int qkv_slots() const { return held ? 4 : qkv.slots(); }
  constexpr int out_slots() const { return held ? 2 : out.slots(); }
  constexpr int gate_up_slots() const {
    return held ? 6 : gate_up.slots() + half_tile_fragments() / kWarpFragments;
  }
  constexpr int down_slots() const { return held ? 3 : down.slots(); }

  constexpr int partial_rows() const {
    return held ? out_rows : most_of(most_of(qkv.rows(), 2 * kRoundUnits), out.rows());
  }
  // Words of a warp's input, both planes: 16 for each step.
  constexpr int input_words() const {
    return held ? 64 : 16 * most_of(hidden_steps, (down_columns + 15) / 16);
  }
  // Slots of the largest chunk; a warp waits for all of a chunk's slots at once.
  constexpr int chunk_slots() const {
    if (held) return gate_up_slots();
    const int rounds =
        most_of(most_of(qkv.chunk(), gate_up.chunk()), most_of(out.chunk(), down.chunk()));
    return most_of(rounds, half_tile_fragments()) / kWarpFragments;
  }
  // Upper bound of the bytes of struct Shared in block.cuh: partial sums, squares, inputs,
  // exponentials or the LM head's input, denominators and maxima, q, k and v in planes, last values
  // seen of accumulators, the residual; then members whose size does not depend on the shape.
  constexpr int64_t staging_bytes() const {
    return 2 * partial_rows() * 80 + 8 * kConsumerWarps + 4LL * kConsumerWarps * input_words() +
           most_of(4096 * head_pairs, held ? 4 * shape.hidden : 0) + 64 * heads + 256 * head_pairs +
           4 * vectors * 640 + 20LL * shape.hidden + 4 * kMaxLayers + 512;
  }
  // A streamed shape needs one slot more than the larger of a chunk and a turn's 4 tiles of K.
  constexpr int least_ring_slots() const { return held ? 3 : most_of(chunk_slots(), 4) + 1; }
  constexpr int64_t least_shared_bytes() const {
    return staging_bytes() + int64_t{least_ring_slots()} * kSlotBytes;
  }
};

constexpr LayerPlan plan_of(const ModelShape& s) {
  LayerPlan p{};
  p.shape = s;
  p.held = s.same_layer_shape(kLayerShapes.shapes[kHeldRow]);
  p.heads = s.heads / kGroups;
  p.head_pairs = p.heads / 2;
  p.vectors = p.heads + 2;
  p.qkv_rows = (p.heads + 2) * kGroups * kHeadDim / kBlocks;
  p.out_rows = s.hidden / kMembers;
  p.out_columns = p.heads * kHeadDim;
  p.units = s.intermediate / kBlocks;
  p.warp_columns = s.hidden / kConsumerWarps;

  p.hidden_steps = p.warp_columns / 16;
  p.unit_tiles = p.units / 8;
  p.half_tile = p.units % 8 != 0;
  p.out_tiles = p.out_rows / 16;
  p.down_parts = p.held || p.units % 16 == 0 ? 1 : 2;
  p.down_columns = p.units * p.down_parts;
  const int tiles = p.out_tiles % 4 == 0 ? 4 : 5;  // in a round of O or down
  p.qkv = {1, p.qkv_rows / 16, p.hidden_steps};
  p.gate_up = {p.unit_tiles / 3, 3, p.hidden_steps};
  p.out = {p.out_tiles / tiles, tiles, p.head_pairs};
  p.down = {p.out_tiles / p.down_parts / tiles, tiles, p.down_columns / 16, p.down_parts,
            p.down_columns % 16 != 0};
  p.head = {1, 3, p.hidden_steps};
  return p;
}

// Whether `slots` of a block hold `rows` times `columns` weights with less than one slot of padding.
constexpr bool slots_hold(int slots, int64_t rows, int64_t columns) {
  const int64_t bytes = rows * columns * 2;
  return bytes <= int64_t{slots} * kSlotBytes && bytes > (int64_t{slots} - 1) * kSlotBytes;
}

// Rounds have whole tiles and fill whole slots, and the slots of each phase hold its weights.
constexpr bool rounds_fit(const LayerPlan& p) {
  const auto whole = [](const Rounds& r) {
    return r.rounds > 0 && r.fragments() % kWarpFragments == 0 && r.fragments() % r.chunk() == 0;
  };
  if (!p.held) {
    const Rounds phases[] = {p.qkv, p.out, p.gate_up, p.down, p.head};
    for (const Rounds& r : phases) {
      if (!whole(r)) return false;
    }
    if (p.unit_tiles != 3 * p.gate_up.rounds || p.out_tiles != p.out.tiles * p.out.rounds ||
        p.out_tiles != p.down.tiles * p.down.rounds * p.down_parts)
      return false;
    // 8 columns after the last step are supported in a phase of one round only.
    if (p.down.eight_more && (p.down.rounds != 1 || p.down_columns % 8 != 0)) return false;
  }
  return slots_hold(p.qkv_slots(), p.qkv_rows, p.shape.hidden) &&
         slots_hold(p.out_slots(), p.out_rows, p.out_columns) &&
         slots_hold(p.gate_up_slots(), 2 * p.units, p.shape.hidden) &&
         slots_hold(p.down_slots(), p.out_rows, p.group_units());
}

// Which dimensions of a shape Layout supports, each by itself; and, if it supports every one,
// whether they also fit together (room, rounds).
struct LayoutFits {
  bool kv_heads, head_dim, heads, hidden, intermediate;
  bool room;    // a block fits into 227 KiB of shared memory (before sm_120)
  bool rounds;  // see rounds_fit()
  constexpr bool each() const { return kv_heads && head_dim && heads && hidden && intermediate; }
  constexpr bool all() const { return each() && room && rounds; }
};
constexpr LayoutFits layout_fits(const ModelShape& s) {
  const int units = s.intermediate / kBlocks, rest = units % kRoundUnits;
  LayoutFits fits{.kv_heads = s.kv_heads == kGroups,
                  .head_dim = s.head_dim == kHeadDim,
                  .heads = s.heads == 2 * kGroups || s.heads == 4 * kGroups,
                  .hidden = s.hidden > 0 && s.hidden % kHiddenStep == 0,
                  .intermediate = s.intermediate % kBlocks == 0 && units >= kRoundUnits &&
                                  (rest == 0 || rest == kUnitRest),
                  .room = false,
                  .rounds = false};
  if (!fits.each()) return fits;
  const LayerPlan plan = plan_of(s);
  fits.room = plan.least_shared_bytes() <= kLargeBlock;
  fits.rounds = fits.room && rounds_fit(plan);
  return fits;
}
constexpr bool has_layout(const ModelShape& s) {
  return s.has_qwen3_layers() && layout_fits(s).all();
}

}  // namespace mkbench::ring
