// The worker's part of `mkbench tune`.
#pragma once

#include "harness/wire/channel.h"
#include "harness/wire/job.h"

namespace mkbench {

// Times the ring megakernel at several depths, paces and splits, and sends each row. Throws
// Error(kUnsupportedDevice) where ring cannot run.
void tune_ring(const CaseJob& job, MessageSink& sink);

}  // namespace mkbench
