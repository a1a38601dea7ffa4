// Partition and phase tables: the maps that the megakernels and the host twin share.
#include <algorithm>
#include <vector>

#include "kernels/partition.h"
#include "kernels/phase.h"
#include "tests/support/catch2.h"

namespace mkbench {
namespace {

// Totals around all numbers of parts in use (8 logical blocks, 108 to 170 multiprocessors), and the
// widths of the model.
const std::vector<int> kTotals{0,   1,    2,    3,    7,    8,    9,    31,   32,
                               33,  97,   127,  128,  129,  131,  132,  133,  170,
                               259, 1000, 1024, 3072, 4096, 4097, 6144, 9728, 151936};
const std::vector<int> kParts{1, 2, 3, 5, 7, 8, 13, 16, 31, 32, 64, 108, 128, 132, 148, 170, 1024};

TEST_CASE("partition covers every index once, in order", "[partition]") {
  for (const int total : kTotals) {
    for (const int parts : kParts) {
      int next = 0, smallest = total, largest = 0;
      bool in_order = true;
      for (int index = 0; index < parts; ++index) {
        const Range r = partition(total, parts, index);
        in_order = in_order && r.begin == next && r.end >= r.begin;
        next = r.end;
        smallest = std::min(smallest, r.size());
        largest = std::max(largest, r.size());
      }
      INFO("total " << total << ", parts " << parts);
      REQUIRE(in_order);
      REQUIRE(next == total);
      // Parts are balanced, and none is larger than the first, by which buffers are sized.
      REQUIRE(largest - smallest <= 1);
      REQUIRE(partition(total, parts, 0).size() == largest);
    }
  }
}

TEST_CASE("partition with more parts than work leaves the last workers empty", "[partition]") {
  for (int index = 0; index < 170; ++index) {
    const Range r = partition(97, 170, index);
    REQUIRE(r.size() == (index < 97 ? 1 : 0));
    REQUIRE(r.end <= 97);
  }
}

TEST_CASE("attention splits stay within grid, context and scratch", "[partition]") {
  for (const int blocks : {1, 2, 3, 8, 16, 108, 128, 132, 170, 1024}) {
    for (const int kv_heads : {1, 2, 3, 8}) {
      int before = 0;
      for (int context = 1; context <= 4200; ++context) {
        const int splits = attention_splits(context, kv_heads, blocks);
        INFO("blocks " << blocks << ", kv heads " << kv_heads << ", context " << context);
        REQUIRE(splits >= 1);
        REQUIRE(splits <= kMaxSplits);
        // A grid with a block or more for each kv head never gives a block two items.
        if (blocks >= kv_heads) REQUIRE(kv_heads * splits <= blocks);
        // No split is empty: each partial has a position, and the last split holds the newest one.
        REQUIRE(partition(context, splits, splits - 1).size() >= 1);
        REQUIRE(partition(context, splits, splits - 1).end == context);
        // n splits need more than (n - 1) * kMinPositionsPerSplit positions.
        if (splits > 1) REQUIRE(context > kMinPositionsPerSplit * (splits - 1));
        REQUIRE(splits >= before);
        before = splits;
      }
      REQUIRE(before == std::min({kMaxSplits, std::max(1, blocks / kv_heads), (4200 + 31) / 32}));
    }
  }
}

TEST_CASE("attention items deal every position of every head to exactly one block", "[partition]") {
  for (const int blocks : {1, 3, 8, 16, 132}) {
    for (const int kv_heads : {1, 2, 8}) {
      for (const int context : {1, 31, 32, 33, 63, 64, 65, 257, 511, 4096}) {
        const int splits = attention_splits(context, kv_heads, blocks);
        std::vector<int> seen(static_cast<size_t>(kv_heads * context));
        for (int block = 0; block < blocks; ++block) {
          for (int item = block; item < kv_heads * splits; item += blocks) {
            const Range r = partition(context, splits, item % splits);
            for (int p = r.begin; p < r.end; ++p) ++seen[(item / splits) * context + p];
          }
        }
        INFO("blocks " << blocks << ", kv heads " << kv_heads << ", context " << context);
        REQUIRE(std::all_of(seen.begin(), seen.end(), [](int n) { return n == 1; }));
      }
    }
  }
}

TEST_CASE("phase table: order, names, and bytes that add up to a step's", "[phase]") {
  for (int i = 0; i < static_cast<int>(Phase::kCount); ++i) {
    REQUIRE(static_cast<int>(kPhases[i].phase) == i);
    REQUIRE_FALSE(kPhases[i].name.empty());
    for (int j = 0; j < i; ++j) REQUIRE(kPhases[i].name != kPhases[j].name);
  }
  for (const ModelShape& shape : {kTiny, kQwen3_0_6B}) {
    for (const int64_t context : {0, 1, 512, 4096, 40960}) {
      int64_t bytes = 0;
      for (const PhaseInfo& info : kPhases) {
        const int64_t times = info.per_layer ? shape.layers : 1;
        bytes += times * phase_bytes(info.phase, shape, context);
      }
      // Besides LM head, layers and KV rows a step reads one embedding row.
      REQUIRE(bytes == shape.bytes_per_step(static_cast<double>(context)) + 2 * shape.hidden);
    }
  }
}

TEST_CASE("the phase that follows so many phases of a step, in the order of kPhases", "[phase]") {
  constexpr int kLayers = 3;
  int64_t ended = 0;
  for (int layer = 0; layer < kLayers; ++layer) {
    for (const PhaseInfo& info : kPhases) {
      if (!info.per_layer) continue;
      const PhasePlace at = phase_after(ended++, kLayers);
      REQUIRE(at.phase == info.phase);
      REQUIRE(at.layer == layer);
    }
  }
  REQUIRE(ended == kLayers * kPhasesPerLayer);
  REQUIRE(phase_after(ended, kLayers).phase == Phase::kLmHead);
  REQUIRE(phase_after(ended, kLayers).layer == -1);
}

}  // namespace
}  // namespace mkbench
