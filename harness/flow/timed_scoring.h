// After the timed part: the truth scores the ids of timed runs for which no closed form exists.
#pragma once

#include <cstdint>
#include <vector>

#include "harness/flow/contestant.h"
#include "harness/flow/services.h"
#include "harness/flow/timed_truth.h"
#include "harness/flow/watch.h"
#include "harness/flow/wrong_runs.h"

namespace mkbench {

// Makes the truth, confirms each distinct path once (confirm_path()) and sends the scored samples.
// An engine with a wrong id gets FAIL_TOKEN, even if it had failed for another reason before. D at
// a step is the larger of the references' D and the step's own D. Returns the first wrong run of
// each engine.
std::vector<WrongRun> score_runs(std::vector<TimedRun>& runs, const TimedTruth& truth,
                                 const std::vector<GreedyReference>& references,
                                 const CaseServices& services, const ModelWeights& weights,
                                 int max_context, std::vector<Contestant>& contestants,
                                 ProgressWatch& watch, EventSink& sink);

}  // namespace mkbench
