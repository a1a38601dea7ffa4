#include "kernels/ring/tuning.h"

#include <algorithm>
#include <climits>
#include <iterator>

namespace mkbench::ring {
namespace {

constexpr int kEver = INT_MAX;

constexpr Tuning kTable[] = {
    // Three copies in flight starve no block and do not lengthen the exchanges; four are better
    // where K and V of a short context come from L2 in between. The gap is widest where the context
    // is split but short: there bursts delay the exchanges most. From 12,000 positions on K and V
    // are most of the stream, and memory is the limit. During the LM head no block waits for
    // another, so it has no gap.
    {.card = "NVIDIA H200",
     .compute_major = 9,
     .paces = {{48, {3, 740}},
               {96, {4, 740}},
               {3000, {3, 880}},
               {6000, {3, 840}},
               {12000, {3, 780}},
               {kEver, {3, 680}}},
     .head_pace = {4, 0},
     .split_from = 96,
     .chosen_by = "sweeps of copies and gaps at twelve depths, 2026-11-22"},
    // Memory is the limit at nearly every depth. The gap is the time that a copy takes in an even
    // stream at full rate, and a little more where the exchanges need bandwidth. Without a gap a
    // token takes 0.5 to 8 % longer.
    {.card = "NVIDIA H100",
     .compute_major = 9,
     .paces = {{32, {4, 1110}},
               {128, {5, 1095}},
               {704, {3, 1175}},
               {1472, {3, 1185}},
               {3000, {3, 1165}},
               {6000, {3, 1155}},
               {12000, {4, 1090}},
               {kEver, {4, 1000}}},
     .head_pace = {3, 0},
     .split_from = 128,
     .chosen_by = "mkbench tune and finer sweeps on two cards, 2026-11-22"},
    // 99 KiB of shared memory hold three slots.
    {.card = "",
     .compute_major = 12,
     .paces = {{kEver, {2, 0}}},
     .head_pace = {2, 0},
     .split_from = 128,
     .chosen_by = "predicted, not measured"},
    // Streamed shapes: memory is the limit at every depth. The gaps are below the time that a copy
    // takes at full rate, so that they even the stream out and never limit it.
    {.card = "NVIDIA H200",
     .compute_major = 9,
     .held = false,
     .paces = {{kEver, {4, 660}}},
     .head_pace = {4, 0},
     .split_from = 128,
     .chosen_by = "predicted, not measured"},
    {.card = "NVIDIA H100",
     .compute_major = 9,
     .held = false,
     .paces = {{kEver, {4, 1000}}},
     .head_pace = {4, 0},
     .split_from = 128,
     .chosen_by = "predicted, not measured"},
    {.card = "",
     .compute_major = 0,
     .held = false,
     .paces = {{kEver, {4, 0}}},
     .head_pace = {4, 0},
     .split_from = 128,
     .chosen_by = "an unknown card: not measured"},
    {.card = "",
     .compute_major = 0,
     .paces = {{kEver, {3, 0}}},
     .head_pace = {4, 0},
     .split_from = 128,
     .chosen_by = "an unknown card: not measured"},
};

bool is_held(const ModelShape& shape) {
  return with_layout(shape, []<typename L>(L) { return L::kHeld; });
}

std::string text_of(const StreamPace& pace) {
  return "{" + std::to_string(pace.copies_in_flight) + ", " + std::to_string(pace.gap_cycles) + "}";
}

}  // namespace

const Tuning& tuning_for(std::string_view device_name, int compute_major, const ModelShape& shape) {
  const bool held = is_held(shape);
  for (const Tuning& row : kTable) {
    const bool named = device_name.find(row.card) != std::string_view::npos;
    if (named && row.held == held && (row.compute_major == 0 || row.compute_major == compute_major))
      return row;
  }
  return kTable[std::size(kTable) - 1];
}

std::string tuning_row(const Tuning& tuning) {
  std::string paces;
  for (const PaceRange& range : tuning.paces) {
    if (range.until == 0) break;
    paces += (paces.empty() ? "{" : ", {") +
             (range.until == kEver ? "kEver" : std::to_string(range.until)) + ", " +
             text_of(range.pace) + "}";
  }
  return "{.card = \"" + std::string(tuning.card) +
         "\", .compute_major = " + std::to_string(tuning.compute_major) +
         (tuning.held ? "" : ", .held = false") + ", .paces = {" + paces +
         "}, .head_pace = " + text_of(tuning.head_pace) +
         ", .split_from = " + std::to_string(tuning.split_from) + ", .chosen_by = \"" +
         std::string(tuning.chosen_by) + "\"},";
}

void apply_tuning(const Tuning& tuning, int compute_major, const ModelShape& shape,
                  LaunchParams& p) {
  const auto bounded = [](StreamPace pace, int most) {
    pace.copies_in_flight = std::min(pace.copies_in_flight, most);
    return pace;
  };
  const int most = most_copies_in_flight(shape, compute_major);
  PaceRange last = tuning.paces[0];
  for (int i = 0; i < kPaceRanges; ++i) {
    if (tuning.paces[i].until != 0) last = tuning.paces[i];
    p.paces[i] = {last.until, bounded(last.pace, most)};
  }
  p.head_pace = bounded(tuning.head_pace, most_head_copies_in_flight(shape, compute_major));
  p.split_from = tuning.split_from;
}

int most_copies_in_flight(const ModelShape& shape, int compute_major) {
  return ring_slots(shape, compute_major) - 1;
}

int most_head_copies_in_flight(const ModelShape& shape, int compute_major) {
  return with_layout(shape, [=]<typename L>(L) { return most_head_copies<L>(compute_major); });
}

}  // namespace mkbench::ring
