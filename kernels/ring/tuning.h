// How fast to stream and when to split the context, for each card. Each row of the table in tuning.cpp
// says whether it was measured or predicted; `mkbench tune` finds and prints a row for a new card.
#pragma once

#include <string>
#include <string_view>

#include "kernels/ring/rows.h"

namespace mkbench::ring {

// Longest context, in positions, that need not be split. Without a split (the redundant mode of
// context_share.cuh) every block reads the first halves of the first round's tiles and no others.
inline constexpr int kMostRedundant = kMembers * kHalfTileRows;

inline constexpr int kMostGapCycles = 1 << 20;

struct Tuning {
  std::string_view card;              // part of the device's name; empty: any card
  int compute_major = 0;              // major compute capability; 0: any
  bool held = true;                   // true: for held shapes; false: for streamed shapes
  PaceRange paces[kPaceRanges] = {};  // ascending; the first `until` of 0 ends the list
  StreamPace head_pace = {};
  int split_from = 0;          // 0 .. kMostRedundant
  std::string_view chosen_by;  // the measurement behind the row, or a note that ends "not measured"
};

// The first row of the table that fits the card and the layer shape. There is always one.
const Tuning& tuning_for(std::string_view device_name, int compute_major, const ModelShape& shape);

// The row as C++ source for the table, in one line.
std::string tuning_row(const Tuning& tuning);

// The inverse of tuning_row(). The row's texts are parts of `text`. Throws Error(kBadInput) for what
// tuning_row() does not write, and for values that no card takes.
Tuning read_tuning_row(std::string_view text);

// True for the shapes of rows with `held`.
bool is_held(const ModelShape& shape);

// Writes a row's values into `p`. The row's last range is repeated to the end of p.paces. Copies in
// flight are limited to most_copies_in_flight(), because a row for unknown cards may name more.
void apply_tuning(const Tuning& tuning, int compute_major, const ModelShape& shape,
                  LaunchParams& p);

// The most copies in flight that a card's ring has room for: one fewer than its slots.
int most_copies_in_flight(const ModelShape& shape, int compute_major);

// The most copies in flight while the LM head streams. The number is smaller if warps skip slots of the
// LM head: see kSmallRing in block.cuh.
int most_head_copies_in_flight(const ModelShape& shape, int compute_major);

}  // namespace mkbench::ring
