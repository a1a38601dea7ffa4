// Diagnostics after the samples: the ablations of each candidate show whether memory or the
// dependency chain limits its speed. They decide no verdict and count as no samples.
#pragma once

#include <vector>

#include "harness/host/contestant.h"
#include "harness/host/services.h"
#include "harness/host/watch.h"
#include "harness/wire/channel.h"
#include "harness/wire/job.h"

namespace mkbench {

// Sends one profile message for each engine: times of both ablations at the job's depth and length,
// or the reason why there are none. The engines hold no sequence afterwards. Throws Interrupted.
void run_profile(const CaseJob& job, const FlowServices& services,
                 const std::vector<Contestant*>& candidates, ProgressWatch& watch,
                 MessageSink& sink);

}  // namespace mkbench
