// What every host can do on its card besides running engines.
#pragma once

#include <cstdint>

#include "harness/wire/calls.h"

namespace mkbench {

// Prepares L2 for a timed part (device/l2_flush.h). The flush also makes the card switch to this
// process's context. Does nothing for a CPU.
void flush_l2(const FlushCall& call);

// Waits until all device work of this process is over. Throws Error(kCuda).
void finish_device_work();

// Bytes of the current GPU that all programs have taken. Throws Error(kCuda).
int64_t device_bytes();

}  // namespace mkbench
