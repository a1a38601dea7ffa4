// Decides from the card's telemetry which blocks count.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "harness/flow/job.h"
#include "harness/measure/sample.h"

namespace mkbench {

// Whether the card is read in a block. Under kAlternate it is read in every other block; over eight
// blocks, read and unread ones give engines the same places (abba) and come first equally often.
bool is_watched(TelemetryMode mode, int block);

struct UnfitBlock {
  int block = 0;
  std::string engine, reason;  // whose sample was unfit, and its condition_doubt()
};

// Telemetry of the blocks that count. A block is dropped as a whole, which keeps the engines
// paired, and on the driver's readings alone, so that no engine can influence the choice.
class BlockConditions {
 public:
  void take(const Sample& sample);
  // Forgets and returns the first block that is unfit by the present medians; the caller drops it
  // and runs it again. nullopt if all blocks are fit, or if the limit of drops is reached: further
  // unfit blocks stay, and the report counts them with the dropped ones.
  std::optional<UnfitBlock> drop_one();

 private:
  std::map<int, std::map<std::string, Telemetry>> blocks_;  // by block and engine
  int dropped_ = 0;
};

}  // namespace mkbench
