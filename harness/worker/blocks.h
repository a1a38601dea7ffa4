// The clock: interleaved blocks in which every engine decodes the same tokens from the same KV
// cache.
#pragma once

#include <vector>

#include "harness/worker/channel.h"
#include "harness/worker/contestant.h"
#include "harness/worker/job.h"
#include "harness/worker/services.h"
#include "harness/worker/timed_truth.h"
#include "harness/worker/watch.h"

namespace mkbench {

// Prefills every living contestant with the truth's prompt, warms up, and sends one sample message
// an engine and block; --target-rel-ci may add blocks. Ids are compared after each clock has
// stopped; an engine with a wrong or missing receipt, clocks that disagree or a launch counter that
// does not fit leaves the case. Throws Interrupted between samples.
void run_blocks(const CaseJob& job, const FlowServices& services, const TimedTruth& truth,
                std::vector<Contestant*> engines, ProgressWatch& watch, MessageSink& sink);

}  // namespace mkbench
