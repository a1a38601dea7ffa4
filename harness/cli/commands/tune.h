// run --tune: measures ring's pace before the first case.
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "harness/cli/plan_settings.h"
#include "harness/flow/job.h"
#include "harness/hosts/hosts.h"

namespace mkbench {

// Gives each job with ring its model's row of ring's tuning: the row in calibration.ring_tuning or, if
// there is none, a row measured now, which is printed and written there. Ctrl-C ends it early. Throws
// what else `mkbench tune` throws.
void tune_jobs(std::vector<CaseJob>& jobs, Hosts& hosts, const CardSettings& settings,
               nlohmann::json& calibration);

}  // namespace mkbench
