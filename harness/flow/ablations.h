// Diagnostics after the samples: the ablations of each candidate show whether memory or the
// dependency chain limits its speed. They decide no verdict and count as no samples.
#pragma once

#include <vector>

#include "harness/flow/contestant.h"
#include "harness/flow/job.h"
#include "harness/flow/services.h"
#include "harness/flow/watch.h"

namespace mkbench {

// Sends one AblationsTaken for each engine: the job's decode timed without waits and without loads,
// or why there are no times. The engines hold no sequence afterwards. Throws Interrupted.
void run_ablations(const CaseJob& job, const FlowServices& services,
                   const std::vector<Contestant*>& candidates, ProgressWatch& watch,
                   EventSink& sink);

}  // namespace mkbench
