// Which blocks count: what the card did during their samples decides.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "harness/flow/job.h"
#include "harness/measure/sample.h"

namespace mkbench {

// Whether the card is read in a block. Under kAlternate one block of each two is, and over eight
// blocks both kinds have every engine's places alike (abba) and come first alike.
bool is_watched(TelemetryMode mode, int block);

struct UnfitBlock {
  int block = 0;
  std::string engine, reason;  // whose sample was unfit, and condition_doubt() of it
};

// Holds the telemetry of the blocks that stand. A block is dropped as a whole, so that pairs stay
// pairs, and by what the driver says alone, so that no engine can choose.
class BlockConditions {
 public:
  void take(const Sample& sample);
  // The first block that is unfit by the present medians, now forgotten: the caller drops it and
  // runs it again. Nothing where all blocks that stand are fit, or where so many were dropped that
  // more would change nothing: such blocks stand, and the report counts them with the dropped ones.
  std::optional<UnfitBlock> drop_one();

 private:
  std::map<int, std::map<std::string, Telemetry>> blocks_;  // by block and engine
  int dropped_ = 0;
};

}  // namespace mkbench
