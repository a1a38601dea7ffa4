// The host's part of `mkbench tune`.
#pragma once

#include "harness/wire/channel.h"
#include "harness/wire/job.h"

namespace mkbench {

// Times the ring megakernel at several depths, paces and splits; progress goes to `sink`. Throws
// Error(kUnsupportedDevice) where ring cannot run.
TuneAnswer tune_ring(const TuneJob& job, MessageSink& sink);

}  // namespace mkbench
