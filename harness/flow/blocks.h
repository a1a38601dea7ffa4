// The timed part of a case: interleaved blocks in which every engine decodes the same tokens from
// the same KV cache.
#pragma once

#include <functional>
#include <vector>

#include "harness/flow/contestant.h"
#include "harness/flow/job.h"
#include "harness/flow/services.h"
#include "harness/flow/timed_truth.h"
#include "harness/flow/watch.h"

namespace mkbench {

// Prefills every contestant that is still in the case with the truth's prompt, warms up, and sends
// one sample for each engine and block; --target-rel-ci may add blocks. Ids are compared
// after each clock has stopped; an engine with a wrong or missing receipt, clocks that disagree or
// a launch counter that does not fit leaves the case. Throws Interrupted between samples.
//
// Where the job holds one engine at a time, `open` makes an engine for each of its turns, in a fresh
// process, and the engine is closed afterwards.
void run_blocks(const CaseJob& job, const FlowServices& services, const TimedTruth& truth,
                std::vector<Contestant*> engines, const std::function<void(Contestant&)>& open,
                ProgressWatch& watch, EventSink& sink);

}  // namespace mkbench
