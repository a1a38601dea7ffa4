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

// In each process of the case: opens every remaining contestant (in a fresh process if the case has
// several), prefills it with the prompt of the process's truth, warms it up, and sends one sample
// for each engine and block (replication.h says how many). --target-rel-ci may add blocks or, if
// there are several, processes. Each block draws an id with which all its engines begin to decode.
// If a closed form gives the ids, they are compared after each clock has stopped; else the samples
// are kUnscored, and score_runs() decides. An engine leaves the case for a wrong or missing
// receipt, a state that differs from a run with logits, clocks that disagree or a launch counter
// that does not fit. Throws Interrupted between samples. Returns all runs whose ids came back. The
// ceiling comes last and only gives samples; its failure ends nothing but itself.
//
// With one engine open at a time, `open` makes the engine in a fresh process for each of its turns,
// and it is closed after the turn.
std::vector<TimedRun> run_blocks(const CaseJob& job, const FlowServices& services,
                                 const TruthOf& truth_of, int vocab,
                                 std::vector<Contestant*> engines,
                                 const std::function<void(Contestant&)>& open, ProgressWatch& watch,
                                 EventSink& sink);

}  // namespace mkbench
