#include "kernels/ring/tuning.h"

#include <algorithm>
#include <charconv>
#include <climits>
#include <iterator>
#include <vector>

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

std::string text_of(const StreamPace& pace) {
  return "{" + std::to_string(pace.copies_in_flight) + ", " + std::to_string(pace.gap_cycles) + "}";
}

// Whether a card can stream at this pace, whose numbers are not negative; apply_tuning() bounds the
// copies in flight.
bool takes(const StreamPace& pace) {
  return pace.copies_in_flight >= 1 && pace.gap_cycles <= kMostGapCycles;
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

Tuning read_tuning_row(std::string_view text) {
  // The row's words and numbers in their order. Whether all else is as it must be shows below.
  std::vector<std::string_view> words;
  std::vector<int> numbers;
  for (std::string_view rest = text; !rest.empty();) {
    size_t used = 1;
    if (rest[0] == '"') {
      words.push_back(rest.substr(1, rest.substr(1).find('"')));
      used = std::min(rest.size(), words.back().size() + 2);
    } else if (rest.starts_with("kEver")) {
      numbers.push_back(kEver);
      used = 5;
    } else if (rest[0] >= '0' && rest[0] <= '9') {
      const char* begin = rest.data();
      const char* end = std::from_chars(begin, begin + rest.size(), numbers.emplace_back()).ptr;
      used = static_cast<size_t>(end - begin);
    }
    rest.remove_prefix(used);
  }
  Tuning row;
  const size_t ranges = numbers.size() < 7 ? 0 : (numbers.size() - 4) / 3;
  bool good = words.size() == 2 && ranges > 0 && ranges <= kPaceRanges;
  if (good) {
    row.card = words[0];
    row.chosen_by = words[1];
    row.held = text.find(".held = false") == text.npos;
    row.compute_major = numbers[0];
    const int* at = &numbers[1];
    int last = 0;
    for (size_t i = 0; i < ranges; ++i, at += 3) {
      row.paces[i] = {at[0], {at[1], at[2]}};
      good &= at[0] > last && takes(row.paces[i].pace);
      last = at[0];
    }
    row.head_pace = {at[0], at[1]};
    row.split_from = at[2];
    good &= last == kEver && takes(row.head_pace) && row.split_from <= kMostRedundant;
  }
  if (!good || tuning_row(row) != text)
    throw Error(ErrorKind::kBadInput, "ring: not a row of tuning.cpp: " + std::string(text));
  return row;
}

bool is_held(const ModelShape& shape) {
  return with_layout(shape, []<typename L>(L) { return L::kHeld; });
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
