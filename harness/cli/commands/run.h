// `mkbench run`, for commands that are runs of their own kind.
#pragma once

#include "harness/cli/run_settings.h"

namespace mkbench {

int run_command(const RunSettings& settings, const Invocation& invocation);

}  // namespace mkbench
