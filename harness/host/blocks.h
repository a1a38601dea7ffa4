// The timed part of a case: interleaved blocks in which every engine decodes the same tokens from
// the same KV cache.
#pragma once

#include <vector>

#include "harness/host/contestant.h"
#include "harness/host/services.h"
#include "harness/host/timed_truth.h"
#include "harness/host/watch.h"
#include "harness/wire/channel.h"
#include "harness/wire/job.h"

namespace mkbench {

// Prefills every contestant that is still in the case with the truth's prompt, warms up, and sends
// one sample message for each engine and block; --target-rel-ci may add blocks. Ids are compared
// after each clock has stopped; an engine with a wrong or missing receipt, clocks that disagree or
// a launch counter that does not fit leaves the case. Throws Interrupted between samples.
void run_blocks(const CaseJob& job, const FlowServices& services, const TimedTruth& truth,
                std::vector<Contestant*> engines, ProgressWatch& watch, MessageSink& sink);

}  // namespace mkbench
