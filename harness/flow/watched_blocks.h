// `mkbench profile`: the blocks of one engine while a profiler watches its process. Nothing is
// judged or timed.
#pragma once

#include <string>

#include "harness/flow/job.h"
#include "harness/flow/services.h"

namespace mkbench {

// What the engine reports of itself.
struct WatchedEngine {
  std::string resolved;     // its own name
  bool one_launch = false;  // it claims one launch for a whole decode
  bool tokens = false;      // each token had a range of its own
};

// Message of the range around all blocks of an engine of the job; the range of a single block is
// named range_name() and the block's number (measure/range_label.h).
std::string blocks_range(const CaseJob& job, const CaseEngine& engine);

// Opens the engine, prefills the timed prompt, runs job.warmup decodes without a label, and then
// job.blocks decodes of n_gen tokens, each after a late id and in its own range. With `tokens` each
// token gets a range too, unless the engine claims one launch for a whole decode. Throws what the
// engine throws, and Interrupted.
WatchedEngine run_watched_blocks(const CaseJob& job, const CaseEngine& engine,
                                 const FlowServices& services, bool tokens);

}  // namespace mkbench
