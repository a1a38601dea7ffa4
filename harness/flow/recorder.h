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
  int tokens = 128;  // of each block
  int blocks = 20;
  int warmup = 4;     // untimed blocks of each engine before
  uint64_t seed = 1;  // of the order inside the blocks
};

// Opens the engines of the job once, by the services, and times them. All engines must emit the same
// ids after the same late id. Returns ms a token by engine, block by block. Throws Error(kIntegrity)
// for ids that differ, and for a block whose clocks disagree several times in a row;
// Error(kRuntime) for an engine that takes no late id; Interrupted.
std::map<std::string, std::vector<double>> record_blocks(const CaseJob& job,
                                                         const FlowServices& services,
                                                         const RecordPlan& plan);

}  // namespace mkbench
