// Records the times of engines without judging them: each in a process of its own, in blocks that
// hold every engine once.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "harness/flow/job.h"
#include "harness/flow/services.h"

namespace mkbench {

struct RecordPlan {
  int tokens = 128;  // decoded in each block
  int blocks = 20;
  int warmup = 4;     // untimed blocks of each engine before the timed ones
  uint64_t seed = 1;  // for the order of opening the engines, and their orders in the blocks
};

// Opens the engines of the job once, times them, and ends their processes. All engines must emit
// the same ids after the same late id. Returns ms a token by engine, block by block. Throws
// Error(kIntegrity) if ids differ or the time of a block is in doubt several times in a row (clocks
// that disagree, other work on the card), Error(kRuntime) if an engine takes no late id, and
// Interrupted.
std::map<std::string, std::vector<double>> record_blocks(const CaseJob& job,
                                                         const FlowServices& services,
                                                         const RecordPlan& plan);

}  // namespace mkbench
