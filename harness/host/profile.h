// Diagnostics after the clock: the ablations of each candidate, which say whether memory or the
// dependency chain binds. They decide no verdict and are no samples.
#pragma once

#include <vector>

#include "harness/host/contestant.h"
#include "harness/host/services.h"
#include "harness/host/watch.h"
#include "harness/wire/channel.h"
#include "harness/wire/job.h"

namespace mkbench {

// Sends one profile message an engine: times of both ablations at the job's depth and length, or
// the reason why there are none. The engines hold no sequence afterwards. Throws Interrupted.
void run_profile(const CaseJob& job, const FlowServices& services,
                 const std::vector<Contestant*>& candidates, ProgressWatch& watch,
                 MessageSink& sink);

}  // namespace mkbench
