// Diagnostics after the clock: the ablations of each candidate, which say whether memory or the
// dependency chain binds. They decide no verdict and are no samples.
#pragma once

#include <vector>

#include "harness/worker/channel.h"
#include "harness/worker/contestant.h"
#include "harness/worker/job.h"
#include "harness/worker/services.h"
#include "harness/worker/watch.h"

namespace mkbench {

// Stages of these runs begin with this word; a worker that ends in one strikes no engine.
inline constexpr char kProfileStage[] = "profile";

// Sends one profile message an engine: times of both ablations at the job's depth and length, or
// the reason why there are none. The engines hold no sequence afterwards. Throws Interrupted.
void run_profile(const CaseJob& job, const FlowServices& services,
                 const std::vector<Contestant*>& candidates, ProgressWatch& watch,
                 MessageSink& sink);

}  // namespace mkbench
