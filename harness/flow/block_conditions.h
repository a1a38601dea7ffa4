// Decides from the card's telemetry which blocks count.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "harness/flow/job.h"
#include "harness/measure/sample.h"

namespace mkbench {

// Whether the card is read in a block. Under kAlternate it is read in block 2i or in 2i + 1;
// over eight blocks, read and unread ones have the same abba orders and come first equally often.
bool is_watched(TelemetryMode mode, int block);

struct UnfitBlock {
  int block = 0;
  std::string engine, reason;  // engine of the unfit sample; its condition_doubt()
};

// Telemetry of the blocks that count. A block is dropped as a whole, which keeps the engines
// paired. Only the driver's readings decide, so no engine can influence the choice.
class BlockConditions {
 public:
  void take(const Sample& sample);
  // Forgets and returns the first block that throttling or a clock below the present median makes
  // unfit; the caller drops it and runs it again. nullopt if all are fit, or if the limit of drops
  // is reached: further unfit blocks stay, and the report counts them with the dropped ones.
  std::optional<UnfitBlock> drop_one();

 private:
  std::map<int, std::map<std::string, Telemetry>> blocks_;  // by block and engine
  int dropped_ = 0;
};

}  // namespace mkbench
