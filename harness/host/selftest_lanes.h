// The host's part of `mkbench selftest`.
#pragma once

#include "harness/wire/channel.h"
#include "harness/wire/job.h"

namespace mkbench {

// Runs the lanes of `job` and sends what each showed. Ends early after a CUDA error, which poisons the
// context for all later lanes.
void run_selftest(const SelftestJob& job, MessageSink& sink);

}  // namespace mkbench
