// How fast to stream and when to split the context, by card: facts that were measured, or are said
// to be predicted. One table; `mkbench tune` finds and prints a row for a new card.
#pragma once

#include <string>
#include <string_view>

#include "kernels/ring/params.h"

namespace mkbench::ring {

// Positions above which blocks must share a context: the redundant mode reads the first halves of
// the first round's tiles.
inline constexpr int kMostRedundant = kMembers * kHalfTileRows;

struct Tuning {
  std::string_view card;              // part of the device's name; empty: any
  int compute_major = 0;              // of the compute capability; 0: any
  PaceRange paces[kPaceRanges] = {};  // ascending; the first `until` of 0 ends them
  StreamPace head_pace = {};
  int split_from = 0;          // 0 .. kMostRedundant
  std::string_view chosen_by;  // the measurement, or that there is none
};

// The row of a card: the first that fits its name and compute capability. There is always one.
const Tuning& tuning_for(std::string_view device_name, int compute_major);

// The row as the table writes it, in one line.
std::string tuning_row(const Tuning& tuning);

// Writes a row's values into `p`, with the last range repeated to the end, and no more copies in
// flight than the ring of that card has room for: a row for any card may say more.
void apply_tuning(const Tuning& tuning, int compute_major, LaunchParams& p);

// Most copies in flight that a card's ring has room for: one slot less than it holds.
int most_copies_in_flight(int compute_major);

// And while the LM head streams, whose slots a warp skips: see kSmallRing in block.cuh.
constexpr int most_head_copies_in_flight(int compute_major) {
  const int slots = ring_slots(compute_major);
  return slots == kMostRingSlots ? slots - 4 : slots - 1;
}

}  // namespace mkbench::ring
