// The worker's part of `mkbench tune`.
#pragma once

#include "harness/worker/channel.h"
#include "harness/worker/job.h"

namespace mkbench {

// Times the ring megakernel at several depths, paces and splits, and sends each row. Throws
// Error(kUnsupportedDevice) where ring cannot run.
void tune_ring(const CaseJob& job, MessageSink& sink);

}  // namespace mkbench
