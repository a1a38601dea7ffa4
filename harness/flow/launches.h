// After the samples: an untimed decode of each engine, whose launches the driver records.
#pragma once

#include <functional>
#include <vector>

#include "harness/flow/contestant.h"
#include "harness/flow/job.h"
#include "harness/flow/services.h"
#include "harness/flow/timed_truth.h"
#include "harness/flow/watch.h"

namespace mkbench {

// Sends one LaunchesTraced for each engine. An engine that claims a whole decode in one launch
// fails with INTEGRITY if another number of kernels and graphs was recorded; copies and memsets
// around its launch are allowed. Closes the engines. `open` opens an engine again that is closed
// because the job holds one at a time. Throws Interrupted.
void trace_launches(const CaseJob& job, const CaseServices& services, const TimedTruth& truth,
                    const std::vector<Contestant*>& engines,
                    const std::function<void(Contestant&)>& open, ProgressWatch& watch,
                    EventSink& sink);

}  // namespace mkbench
