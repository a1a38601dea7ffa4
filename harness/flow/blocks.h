// The timed part of a case: interleaved blocks in which every engine decodes from the same KV cache
// and the same late id.
#pragma once

#include <functional>
#include <vector>

#include "harness/flow/contestant.h"
#include "harness/flow/job.h"
#include "harness/flow/services.h"
#include "harness/flow/timed_scoring.h"
#include "harness/flow/timed_truth.h"
#include "harness/flow/watch.h"

namespace mkbench {

// In each process of the case: opens every contestant that is still in it (where there is more than
// one process, in a fresh one), prefills it with the prompt of the process's truth, warms it up, and
// sends one sample for each engine and block (replication.h says how many); --target-rel-ci may add
// blocks, or processes where there are several. Each block draws an id with
// which all its engines begin to decode. Where a closed form gives the ids they are compared after
// each clock has stopped; else the samples are kUnscored, and score_runs() decides. An engine with
// a wrong or missing receipt, another state than a run with logits leaves, clocks that disagree or
// a launch counter that does not fit leaves the case. Throws Interrupted between samples. Returns
// all runs whose ids came back. The ceiling, which stands last, only gives samples, and its failure
// ends nothing but itself.
//
// Where the job holds one engine at a time, `open` makes an engine for each of its turns, in a fresh
// process, and the engine is closed afterwards.
std::vector<TimedRun> run_blocks(const CaseJob& job, const FlowServices& services,
                                 const TruthOf& truth_of, int vocab,
                                 std::vector<Contestant*> engines,
                                 const std::function<void(Contestant&)>& open, ProgressWatch& watch,
                                 EventSink& sink);

}  // namespace mkbench
