// The devices of this machine, for `mkbench list` and `run --list-devices`.
#pragma once

#include "harness/cli/plan_settings.h"

namespace mkbench {

// Prints the devices. Returns the exit code.
int list_devices(const CardSettings& settings, const Invocation& invocation);

}  // namespace mkbench
