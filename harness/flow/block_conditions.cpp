#include "harness/flow/block_conditions.h"

#include <vector>

namespace mkbench {
namespace {

// At most 2 blocks, plus one for every three that are kept, are dropped. The limit is always above
// 20 % of the blocks, and more than 20 % dropped is INCONCLUSIVE anyway.
constexpr int kDropsAtFirst = 2, kBlocksForADrop = 3;

}  // namespace

bool is_watched(TelemetryMode mode, int block) {
  if (mode != TelemetryMode::kAlternate) return mode == TelemetryMode::kOn;
  return (block % 2 == 0) == (block / 4 % 2 == 0);
}

void BlockConditions::take(const Sample& sample) {
  auto& engines = blocks_[sample.block];
  if (sample.card) engines[sample.engine] = *sample.card;
}

std::optional<UnfitBlock> BlockConditions::drop_one() {
  std::map<std::string, std::vector<const Telemetry*>> by_engine;
  for (const auto& [block, engines] : blocks_) {
    for (const auto& [engine, card] : engines) by_engine[engine].push_back(&card);
  }
  std::map<std::string, std::optional<double>> medians;
  for (const auto& [engine, parts] : by_engine) medians[engine] = median_sm_clock(parts);
  for (const auto& [block, engines] : blocks_) {
    for (const auto& [engine, card] : engines) {
      UnfitBlock unfit{block, engine, condition_doubt(card, medians[engine])};
      if (unfit.reason.empty()) continue;
      const auto stand = static_cast<int>(blocks_.size()) - 1;
      if (dropped_ >= kDropsAtFirst + stand / kBlocksForADrop) return std::nullopt;
      ++dropped_;
      blocks_.erase(block);
      return unfit;
    }
  }
  return std::nullopt;
}

}  // namespace mkbench
