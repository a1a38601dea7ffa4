// What every host can do on its card besides running engines.
#pragma once

#include "harness/wire/calls.h"

namespace mkbench {

// Prepares L2 for a timed part (device/l2_flush.h). The flush also makes the card switch to this
// process's context. Does nothing for a CPU.
void flush_l2(const FlushCall& call);

// Waits until all device work of this process is over. Throws Error(kCuda).
void finish_device_work();

}  // namespace mkbench
