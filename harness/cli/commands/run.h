// `mkbench run`; parity and compare use it too.
#pragma once

#include "harness/cli/run_settings.h"

namespace mkbench {

int run_command(const RunSettings& settings, const Invocation& invocation);

}  // namespace mkbench
