// The ring megakernel's index functions: every weight and every KV element has exactly one place.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "kernels/ring/context_share.cuh"
#include "kernels/ring/fault_word.h"
#include "kernels/ring/fixed_point.h"
#include "kernels/ring/kv_rows.h"
#include "kernels/ring/layout.h"
#include "tests/support/catch2.h"

namespace mkbench::ring {
namespace {

constexpr int kSlotElements = kSlotBytes / 2;

// Rows and columns of each tensor, in the order of enum Tensor.
struct Extent {
  int rows, columns;
};
constexpr Extent kExtents[] = {{kShape.q_width(), kHidden},    {kShape.kv_width(), kHidden},
                               {kShape.kv_width(), kHidden},   {kHidden, kShape.q_width()},
                               {kShape.intermediate, kHidden}, {kShape.intermediate, kHidden},
                               {kHidden, kShape.intermediate}};

TEST_CASE("a layer's stream holds every element of its seven matrices once", "[ring]") {
  std::vector<std::vector<uint8_t>> seen;
  for (const Extent& e : kExtents) {
    seen.emplace_back(static_cast<size_t>(e.rows) * static_cast<size_t>(e.columns));
  }
  bool inside = true;
  int64_t twice = 0, count = 0;
  for (int block = 0; block < kBlocks; ++block) {
    for (int slot = 0; slot < kLayerSlots; ++slot) {
      for (int element = 0; element < kSlotElements; ++element) {
        const WeightIndex w = weight_at(block / kMembers, block % kMembers, slot, element);
        const Extent& e = kExtents[static_cast<int>(w.tensor)];
        const bool real = w.row >= 0 && w.row < e.rows && w.column >= 0 && w.column < e.columns;
        inside = inside && real;
        if (!real) continue;
        uint8_t& mark = seen[static_cast<size_t>(w.tensor)]
                            [static_cast<size_t>(w.row) * static_cast<size_t>(e.columns) +
                             static_cast<size_t>(w.column)];
        twice += mark++ != 0;
        ++count;
      }
    }
  }
  REQUIRE(inside);
  REQUIRE(twice == 0);
  const int64_t norms = 2LL * kHidden + 2LL * kHeadDim;
  REQUIRE(count == kShape.layer_parameters() - norms);  // therefore none is missing
}

TEST_CASE("what a group multiplies needs only what it computed itself", "[ring]") {
  for (int block = 0; block < kBlocks; ++block) {
    const int g = block / kMembers;
    for (int slot = 0; slot < kLayerSlots; ++slot) {
      for (int element = 0; element < kSlotElements; element += 31) {
        const WeightIndex w = weight_at(g, block % kMembers, slot, element);
        if (w.tensor == Tensor::kQ) REQUIRE(w.row / kHeadDim / kShape.gqa_group() == g);
        if (w.tensor == Tensor::kK || w.tensor == Tensor::kV) REQUIRE(w.row / kHeadDim == g);
        if (w.tensor == Tensor::kO) REQUIRE(w.column / kOutColumns == g);
        if (w.tensor == Tensor::kGate || w.tensor == Tensor::kUp) {
          REQUIRE(w.row / kGroupUnits == g);
        }
        if (w.tensor == Tensor::kDown) REQUIRE(w.column / kGroupUnits == g);
      }
    }
  }
}

TEST_CASE("the LM head's slots hold every row once, whatever the vocabulary", "[ring]") {
  for (const int vocab : {1, 7, 127, 128, 129, 1000, 1024, 1025, 4099, 151669, 151936}) {
    std::vector<uint8_t> seen(static_cast<size_t>(vocab));
    int64_t padding = 0;
    bool whole_rows = true, ascending = true;
    for (int block = 0; block < kBlocks; ++block) {
      int before = -1;
      for (int slot = 0; slot < head_slots(vocab); ++slot) {
        for (int r = 0; r < kRowsPerSlot; ++r) {
          const HeadIndex first = head_at(vocab, block, slot, r * kHidden);
          const HeadIndex last = head_at(vocab, block, slot, r * kHidden + kHidden - 1);
          whole_rows = whole_rows && first.row == last.row && first.column == 0 &&
                       last.column == kHidden - 1 && first.row < vocab;
          if (first.row < 0) {
            ++padding;
            continue;
          }
          ascending = ascending && first.row > before;
          before = first.row;
          ++seen[static_cast<size_t>(first.row)];
        }
      }
    }
    INFO("vocabulary " << vocab);
    REQUIRE(whole_rows);
    REQUIRE(ascending);  // because among equal logits the lowest row must win
    REQUIRE(std::all_of(seen.begin(), seen.end(), [](uint8_t n) { return n == 1; }));
    REQUIRE(padding == int64_t{kBlocks} * head_slots(vocab) * kRowsPerSlot - vocab);
  }
}

TEST_CASE("slots of the stream are disjoint and fill it", "[ring]") {
  const int slots = stream_slots(4, 1000);
  std::vector<size_t> offsets;
  for (int slot = 0; slot < slots; ++slot) {
    for (int block = 0; block < kBlocks; ++block) offsets.push_back(slot_offset(slot, block));
  }
  std::sort(offsets.begin(), offsets.end());
  for (size_t i = 0; i < offsets.size(); ++i) REQUIRE(offsets[i] == i * kSlotBytes);
  REQUIRE(slot_offset(slots, 0) == offsets.size() * kSlotBytes);
  std::vector<int> blocks;
  for (int b = 0; b < kBlocks; ++b) blocks.push_back(place_of(b));
  std::sort(blocks.begin(), blocks.end());
  for (int b = 0; b < kBlocks; ++b) REQUIRE(blocks[static_cast<size_t>(b)] == b);
}

// Contexts around the edges of half tiles, of the redundant mode and of rounds.
constexpr int kContexts[] = {1,   31,  32,   33,   63,   64,   65,   511,
                             512, 513, 1023, 1024, 1025, 2047, 2048, 2049};

TEST_CASE("every KV element has one place inside its head's bytes", "[ring]") {
  for (const int context : kContexts) {
    const size_t bytes = kv_head_bytes(context);
    std::vector<uint8_t> seen(bytes / 2);
    bool fits = true, contiguous = true, inverts = true;
    for (int kind = 0; kind < 2; ++kind) {
      for (int position = 0; position < context; ++position) {
        const size_t half =
            kv_offset(position / kHalfTileRows * kHalfTileRows, 0, kind) / kHalfTileBytes;
        for (int d = 0; d < kHeadDim; ++d) {
          const size_t at = kv_offset(position, d, kind);
          fits = fits && at % 2 == 0 && at < bytes && seen[at / 2]++ == 0;
          // A bulk copy of half a tile fetches the rows of 32 neighbouring positions.
          contiguous = contiguous && at / kHalfTileBytes == half;
          const HalfIndex index = half_index(kind, static_cast<int>(at % kHalfTileBytes / 2));
          inverts = inverts && index.row == position % kHalfTileRows && index.d == d;
        }
      }
    }
    INFO("context " << context);
    REQUIRE(fits);
    REQUIRE(contiguous);
    REQUIRE(inverts);
    // No other element is used.
    const int64_t used = std::count(seen.begin(), seen.end(), 1);
    REQUIRE(used == int64_t{2} * context * kHeadDim);
  }
}

// How many of `members` blocks attend to each position in one mode.
template <bool kSplit>
std::vector<int> attended(int context, int members) {
  std::vector<int> seen(static_cast<size_t>(context));
  for (int member = 0; member < members; ++member) {
    const ContextShare<kSplit> share{context, member};
    REQUIRE(share.halves() <= 2 * share.tiles());
    REQUIRE(share.halves() > 2 * share.tiles() - 2);
    for (int half = 0; half < share.halves(); ++half) {
      const int first = share.half_position(half);
      REQUIRE(first < context);  // no half is fetched that has no row of the context
      if (kSplit) {
        // The half lies in the tile that the loader fetches for it.
        REQUIRE(tile_member(first) == member);
        REQUIRE(first / kRoundPositions == half / 2);
        REQUIRE(tile_row(first) == half % 2 * kHalfTileRows);
      }
      for (int p = first; p < std::min(context, first + kHalfTileRows); ++p) {
        ++seen[static_cast<size_t>(p)];
      }
    }
  }
  return seen;
}

TEST_CASE("every position is attended to once, in both modes", "[ring]") {
  for (const int context : kContexts) {
    INFO("context " << context);
    const auto split = attended<true>(context, kMembers);
    REQUIRE(std::all_of(split.begin(), split.end(), [](int n) { return n == 1; }));
    if (context > kMembers * kHalfTileRows) continue;  // too long for the redundant mode
    const auto redundant = attended<false>(context, 1);
    REQUIRE(std::all_of(redundant.begin(), redundant.end(), [](int n) { return n == 1; }));
    // The redundant mode reads only the first halves of round 0's tiles.
    for (int p = 0; p < context; ++p) REQUIRE(tile_row(p) < kHalfTileRows);
  }
}

FixedWord word_of(double value) {
  return fixed_contribution(std::llround(value * static_cast<double>(kFixedScale)));
}

TEST_CASE("fixed-point words: the sum, in any order, however often the word has wrapped",
          "[ring]") {
  std::mt19937 random(1);
  std::uniform_real_distribution<double> exponent(-30, 19.99), sign(-1, 1);
  FixedWord word = 0;
  int wraps = 0;
  for (int round = 0; round < 200000; ++round) {
    std::vector<double> values;
    for (int g = 0; g < kGroups; ++g) {
      values.push_back(std::exp2(exponent(random)) * (sign(random) < 0 ? -1 : 1));
    }
    const FixedWord before = word;
    double sum = 0;
    for (const double v : values) {
      word += word_of(v);
      sum += static_cast<double>(std::llround(v * static_cast<double>(kFixedScale)));
    }
    sum /= static_cast<double>(kFixedScale);
    wraps += word < before;
    REQUIRE(fixed_arrivals(word - before) == kGroups);
    REQUIRE(std::abs(fixed_sum(word - before) - sum) <= 0x1p-22 * std::abs(sum));
    std::shuffle(values.begin(), values.end(), random);
    FixedWord again = before;
    for (const double v : values) again += word_of(v);
    REQUIRE(again == word);
  }
  REQUIRE(wraps > 10);
}

TEST_CASE("fixed-point words: partial arrivals and the range's end", "[ring]") {
  const double most = static_cast<double>(kFixedLimit);
  FixedWord word = 0;
  for (unsigned g = 1; g <= kGroups; ++g) {
    word += word_of(-most / 2);
    REQUIRE(fixed_arrivals(word) == g);
  }
  REQUIRE(fixed_sum(word) == static_cast<float>(-4 * most));
  // The largest allowed contributions do not change the count; contributions at the limit do.
  const double below = most - 1;
  for (const double v : {below, -below}) {
    word = 0;
    for (int g = 0; g < kGroups; ++g) word += word_of(v);
    REQUIRE(fixed_arrivals(word) == kGroups);
    REQUIRE(fixed_sum(word) == Approx(kGroups * v));
  }
  word = 0;
  for (int g = 0; g < kGroups; ++g) word += word_of(most);
  REQUIRE(fixed_arrivals(word) != kGroups);
  // The smallest value is not lost beside the largest.
  word = word_of(below) + word_of(-below) + word_of(0x1p-24);
  for (int g = 3; g < kGroups; ++g) word += word_of(0);
  REQUIRE(fixed_sum(word) == 0x1p-24f);
}

TEST_CASE("a fault word gives back what went in", "[ring]") {
  KernelStatus status{7, 0, 0, 0, 0, 0, 0, 0};
  unpack_fault(pack_fault(kRaisedHang, 6, kMaxLayers, kBlocks - 1, 40959, 255, 3), status);
  REQUIRE(status.progress_position == 7);
  REQUIRE(status.raised == kRaisedHang);
  REQUIRE(status.phase == 6);
  REQUIRE(status.layer == kMaxLayers);
  REQUIRE(status.block == kBlocks - 1);
  REQUIRE(status.position == 40959);
  REQUIRE(status.expected == 255);
  REQUIRE(status.seen == 3);
  // The upper half alone is never 0 for a fault: waits look only at it.
  for (const int raised : {kRaisedHang, kRaisedRange}) {
    REQUIRE(pack_fault(raised, 0, 0, 0, 0, 0, 0) >> 32 != 0);
  }
  unpack_fault(pack_fault(kRaisedRange, 0, 0, 0, 0, 0, 0), status);
  REQUIRE(status.raised == kRaisedRange);
}

}  // namespace
}  // namespace mkbench::ring
