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
// for each engine and block (replication.h says how many). --target-rel-ci may add blocks or, in a
// case of several processes, processes. In each block, all engines begin to decode with the same
// drawn id. With a closed form, the ids are checked after each timed run; else the samples are
// kUnscored, and score_runs() decides. An engine leaves the case for a wrong or missing receipt, a
// state that differs from that of a run with logits, disagreeing clocks or a wrong launch counter.
// Throws Interrupted between samples. Returns all runs whose ids came back. The ceiling comes last
// and is only timed; if it fails, the other engines go on.
//
// With one engine open at a time, `open` makes the engine in a fresh process for each of its turns,
// and it is closed after the turn.
std::vector<TimedRun> run_blocks(const CaseJob& job, const FlowServices& services,
                                 const TruthOf& truth_of, int vocab,
                                 std::vector<Contestant*> engines,
                                 const std::function<void(Contestant&)>& open, ProgressWatch& watch,
                                 EventSink& sink);

}  // namespace mkbench
