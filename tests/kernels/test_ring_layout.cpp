// The ring megakernel's index functions: every weight and every KV element has exactly one place.
#include <algorithm>
#include <array>
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
#include "tests/support/ring_layouts.h"

namespace mkbench::ring {
namespace {

using testing::for_each_layout;

constexpr int kSlotElements = kSlotBytes / 2;

// Rows and columns of each tensor, in the order of enum Tensor.
struct Extent {
  int rows, columns;
};
std::array<Extent, 7> extents(const ModelShape& s) {
  return {{{s.q_width(), s.hidden},
           {s.kv_width(), s.hidden},
           {s.kv_width(), s.hidden},
           {s.hidden, s.q_width()},
           {s.intermediate, s.hidden},
           {s.intermediate, s.hidden},
           {s.hidden, s.intermediate}}};
}

// Counts how often each weight of a layer occurs in the stream.
struct WeightCount {
  explicit WeightCount(const ModelShape& shape) : of(extents(shape)) {
    for (const Extent& e : of)
      seen.emplace_back(static_cast<size_t>(e.rows) * static_cast<size_t>(e.columns));
  }
  void add(const WeightIndex& w) {
    if (w.row < 0) {
      ++padding;
      return;
    }
    const Extent& e = of[static_cast<size_t>(w.tensor)];
    if (w.row >= e.rows || w.column < 0 || w.column >= e.columns) {
      ++outside;
      return;
    }
    uint8_t& mark = seen[static_cast<size_t>(w.tensor)]
                        [static_cast<size_t>(w.row) * static_cast<size_t>(e.columns) +
                         static_cast<size_t>(w.column)];
    twice += mark++ != 0;
    ++count;
  }
  std::array<Extent, 7> of;
  std::vector<std::vector<uint8_t>> seen;
  int64_t outside = 0, twice = 0, count = 0, padding = 0;
};

TEST_CASE("a layer's stream holds every element of its seven matrices once", "[ring]") {
  for_each_layout([]<typename L>(L) {
    WeightCount weights(L::kShape);
    // Streamed shapes are large, so two of their eight groups are looked at: the others have the same map with
    // rows and columns of their own, as the next test sees.
    const std::vector<int> groups =
        L::kHeld ? std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7} : std::vector<int>{0, 5};
    const int64_t share = static_cast<int64_t>(groups.size());
    for (int i = 0; i < kMembers * static_cast<int>(share); ++i) {
      const int block = groups[static_cast<size_t>(i / kMembers)] * kMembers + i % kMembers;
      for (int slot = 0; slot < L::kLayerSlots; ++slot) {
        for (int element = 0; element < kSlotElements; ++element)
          weights.add(L::weight_at(block / kMembers, block % kMembers, slot, element));
      }
    }
    INFO("hidden_size " << L::kHidden);
    REQUIRE(weights.outside == 0);
    REQUIRE(weights.twice == 0);
    const int64_t norms = 2LL * L::kHidden + 2LL * kHeadDim;
    // Therefore none is missing.
    REQUIRE(weights.count == (L::kShape.layer_parameters() - norms) / kGroups * share);
    // Less than 1 % is read in vain.
    REQUIRE(weights.padding < weights.count / 100);
    REQUIRE(weights.count + weights.padding == share * kMembers * L::kLayerSlots * kSlotElements);
  });
}

TEST_CASE("what a group multiplies needs only what it computed itself", "[ring]") {
  for_each_layout([]<typename L>(L) {
    int64_t strange = 0;
    for (int block = 0; block < kBlocks; ++block) {
      const int g = block / kMembers;
      for (int slot = 0; slot < L::kLayerSlots; ++slot) {
        for (int element = 0; element < kSlotElements; element += 31) {
          const WeightIndex w = L::weight_at(g, block % kMembers, slot, element);
          if (w.row < 0) continue;
          int of = g;
          if (w.tensor == Tensor::kQ) of = w.row / kHeadDim / L::kHeads;
          if (w.tensor == Tensor::kK || w.tensor == Tensor::kV) of = w.row / kHeadDim;
          if (w.tensor == Tensor::kO) of = w.column / L::kOutColumns;
          if (w.tensor == Tensor::kGate || w.tensor == Tensor::kUp) of = w.row / L::kGroupUnits;
          if (w.tensor == Tensor::kDown) of = w.column / L::kGroupUnits;
          strange += of != g;
        }
      }
    }
    INFO("hidden_size " << L::kHidden);
    REQUIRE(strange == 0);
  });
}

// One product of a streamed phase as the kernel's code forms it (streamed/phases.cuh,
// roles/publisher.cuh): which row of the block's output the publisher adds it to, and which column
// of the block's input the consumer multiplies it with. `r` describes the phase; columns of a warp
// are neighbours.
struct Product {
  int row, column;
};
Product product_of(const Rounds& r, int warp, int fragment, int lane, int element) {
  const int each = r.fragments(), round = fragment / each, in_round = fragment % each;
  const int row8 = lane / 4, j = lane % 4, reg = element / 2, half = element % 2;
  const int column_warps = kConsumerWarps / r.parts;
  const int first_column = warp % column_warps * (16 * r.steps + (r.eight_more ? 8 : 0));
  const int first_row = round * r.parts * r.rows() + warp / column_warps * r.rows();
  const int step = in_round / r.tiles;
  if (step < r.steps) {  // mma_k16: registers 1 and 3 are row + 8; words 2j and 2j + 1 of the step
    return {first_row + 16 * (in_round % r.tiles) + row8 + 8 * (reg % 2),
            first_column + 16 * step + 2 * (2 * j + reg / 2) + half};
  }
  // mma_k8: registers 0, 1 are one tile, 2, 3 the next; word j of the last half step
  const int tile = 2 * (in_round - r.tiles * r.steps) + reg / 2;
  if (tile >= r.tiles) return {-1, 0};
  return {first_row + 16 * tile + row8 + 8 * (reg % 2), first_column + 16 * r.steps + 2 * j + half};
}

// Calls `f` with each product of a phase that begins at `first_slot` and the weight that lies there.
template <typename L, typename F>
void for_each_product(const Rounds& r, int first_slot, int g, int m, F f) {
  for (int slot = 0; slot < r.slots(); ++slot) {
    for (int e = 0; e < kSlotElements; ++e) {
      const int warp = e / 512, fragment = 2 * slot + e / 256 % 2;
      f(product_of(r, warp, fragment, e / 8 % 32, e % 8), L::weight_at(g, m, first_slot + slot, e));
    }
  }
}

TEST_CASE("the fragments of streamed phases lie where the kernel multiplies them", "[ring]") {
  for_each_layout([]<typename L>(L) {
    if constexpr (!L::kHeld) {
      int64_t wrong = 0, count = 0;
      const int g = 5, m = 11;
      for_each_product<L>(L::kQkvRound, 0, g, m, [&](Product p, WeightIndex w) {
        const WeightIndex wanted = L::qkv_weight(g, m, p.row, p.column);
        wrong += w.tensor != wanted.tensor || w.row != wanted.row || w.column != wanted.column;
        ++count;
      });
      // O's step s has dimensions 8 warp + 2 j, + 1 of head 2 s, in b0, and of head 2 s + 1, in b1.
      for_each_product<L>(L::kOutRound, L::kQkvSlots, g, m, [&](Product p, WeightIndex w) {
        const int warp = p.column / (16 * L::kHeadPairs), in_warp = p.column % (16 * L::kHeadPairs);
        const int step = in_warp / 16, word = in_warp % 16 / 2, half = p.column % 2;
        const int head = 2 * step + word % 2, d = 8 * warp + 2 * (word / 2) + half;
        wrong += w.tensor != Tensor::kO || w.row != L::kOutRows * m + p.row ||
                 w.column != (L::kHeads * g + head) * kHeadDim + d;
        ++count;
      });
      const int gate_up = L::kQkvSlots + L::kOutSlots;
      for_each_product<L>(L::kGateUpRound, gate_up, g, m, [&](Product p, WeightIndex w) {
        const int unit = p.row / 16 * 8 + p.row % 8;
        wrong += w.tensor != (p.row % 16 < 8 ? Tensor::kGate : Tensor::kUp) ||
                 w.row != L::kUnits * (kMembers * g + m) + unit || w.column != p.column;
        ++count;
      });
      const int down = gate_up + L::kGateUpSlots;
      for_each_product<L>(L::kDownRound, down, g, m, [&](Product p, WeightIndex w) {
        if (p.row < 0 && w.row < 0) return;  // padding
        wrong += w.tensor != Tensor::kDown || w.row != L::kOutRows * m + p.row ||
                 w.column != L::kGroupUnits * g + p.column;
        ++count;
      });
      // The half tile: 4 gate rows, then 4 up rows; registers 0 and 1 are the columns of mma's b0 and
      // b1 in an even step, registers 2 and 3 those of the next step.
      for (int f = 0; f < L::kHalfTileFragments; ++f) {
        for (int e = 0; e < 16 * 256; ++e) {
          const int warp = e / 256, lane = e / 8 % 32, reg = e % 8 / 2;
          const int fragment = L::kGateUpRound.rounds * L::kGateUpRound.fragments() + f;
          const WeightIndex w =
              L::weight_at(g, m, gate_up + fragment / 2, 512 * warp + fragment % 2 * 256 + e % 256);
          const int step = 2 * f + reg / 2, row8 = lane / 4;
          if (step >= L::kHiddenSteps) {
            wrong += w.row >= 0;
            continue;
          }
          wrong += w.tensor != (row8 < 4 ? Tensor::kGate : Tensor::kUp) ||
                   w.row != L::kUnits * (kMembers * g + m) + L::kUnits / 8 * 8 + row8 % 4 ||
                   w.column !=
                       L::kWarpColumns * warp + 16 * step + 2 * (2 * (lane % 4) + reg % 2) + e % 2;
          ++count;
        }
      }
      INFO("hidden_size " << L::kHidden);
      REQUIRE(wrong == 0);
      REQUIRE(count * kBlocks == L::kShape.layer_parameters() - 2 * L::kHidden - 2 * kHeadDim);
    }
  });
}

TEST_CASE("streamed rounds fill whole chunks, and chunks whole slots", "[ring]") {
  for_each_layout([]<typename L>(L) {
    if constexpr (!L::kHeld) {
      for (const Rounds& r :
           {L::kQkvRound, L::kOutRound, L::kGateUpRound, L::kDownRound, L::kHeadRound}) {
        INFO("hidden_size " << L::kHidden << ", " << r.tiles << " tiles, " << r.steps << " steps");
        REQUIRE(r.chunk() % kWarpFragments == 0);
        REQUIRE(r.fragments() % r.chunk() == 0);
        REQUIRE(r.chunk() / kWarpFragments <= L::kChunkSlots);
        REQUIRE(r.rows() <= L::kPartialRows);
        REQUIRE(16 * (r.steps + (r.eight_more ? 1 : 0)) <= L::kInputWords);
      }
      REQUIRE(L::kHalfTileFragments / kWarpFragments <= L::kChunkSlots);
      // The ring has a slot more than a warp waits for at once, or than a turn has tiles of K, on the cards
      // that run it.
      REQUIRE(ring_slots<L>(9) > std::max(L::kChunkSlots, 4));
    }
  });
}

TEST_CASE("every q, k and v has one word, and every word one reader", "[ring]") {
  for_each_layout([]<typename L>(L) {
    std::vector<int> elements(static_cast<size_t>(L::kVectors * kHeadDim));
    for (int m = 0; m < kMembers; ++m) {
      std::vector<int> words(static_cast<size_t>(L::kQkvRows));
      for (int row = 0; row < L::kQkvRows; ++row) {
        const auto at = L::qkv_row(m, row);
        ++elements[static_cast<size_t>(at.vector * kHeadDim + at.d)];
        ++words[static_cast<size_t>(L::qkv_word(row))];
        // The two dimensions that RoPE turns into each other lie in the same block.
        const int pair = L::kHeld ? row ^ 16 : row ^ 8;
        REQUIRE(L::qkv_row(m, pair).vector == at.vector);
        REQUIRE((L::qkv_row(m, pair).d ^ 64) == at.d);
        if (!L::kHeld) REQUIRE((L::qkv_word(pair) ^ 1) == L::qkv_word(row));
      }
      REQUIRE(std::all_of(words.begin(), words.end(), [](int n) { return n == 1; }));
    }
    REQUIRE(std::all_of(elements.begin(), elements.end(), [](int n) { return n == 1; }));
  });
}

TEST_CASE("the LM head's slots hold every row once, whatever the vocabulary", "[ring]") {
  for_each_layout([]<typename L>(L) {
    for (const int vocab : {1, 7, 127, 128, 129, 1000, 1024, 1025, 3072, 4099, 151936}) {
      if (vocab > 5000 && L::kHidden > 2048) continue;  // the two narrowest shapes show it
      // For each row, the sum of its columns and how many there are.
      std::vector<int64_t> sums(static_cast<size_t>(vocab)), counts(sums.size());
      int64_t padding = 0, foreign = 0;
      for (int block = 0; block < kBlocks; ++block) {
        for (int slot = 0; slot < L::head_slots(vocab); ++slot) {
          for (int e = 0; e < kSlotElements; ++e) {
            const HeadIndex at = L::head_at(vocab, block, slot, e);
            if (at.row < 0) {
              ++padding;
              continue;
            }
            foreign += at.row / L::head_rows(vocab) != block;
            sums[static_cast<size_t>(at.row)] += at.column;
            ++counts[static_cast<size_t>(at.row)];
          }
        }
      }
      INFO("hidden_size " << L::kHidden << ", vocabulary " << vocab);
      const int64_t hidden = L::kHidden;
      REQUIRE(foreign == 0);  // neighbouring rows, because among equal logits the lowest must win
      REQUIRE(std::all_of(counts.begin(), counts.end(), [&](int64_t n) { return n == hidden; }));
      REQUIRE(std::all_of(sums.begin(), sums.end(),
                          [&](int64_t n) { return n == hidden * (hidden - 1) / 2; }));
      REQUIRE(padding == int64_t{kBlocks} * L::head_slots(vocab) * kSlotElements - vocab * hidden);
    }
  });
}

TEST_CASE("slots of the stream are disjoint and fill it", "[ring]") {
  const int slots = Layout<0>::stream_slots(4, 1000);
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
