// The main loop of a host: the process that holds an engine and does what its parent asks.
#pragma once

#include "harness/host/server.h"

namespace mkbench {

// Serves the parent over the descriptors of channel.h until the parent closes its end, and ends the
// process without running destructors, which may hang after a fault of CUDA or libtorch. Returns 2
// if no parent started the process.
int serve(const HostProgram& program);

}  // namespace mkbench
