// Two builds of one engine in one run: what `mkbench compare` times, and how it judges them.
#pragma once

#include <string>

#include "harness/archive/versions.h"

namespace mkbench {

// BUILD/engines/NAME.so: an engine's file in a build folder. `name` is the resolved name. Throws
// Error(kBadInput) if the file is missing.
std::string exported_engine(const std::string& build, const std::string& name);

// Like gate_versions(), for two engines timed in the same blocks of one report: the machine was the
// same for both, so the ratios are paired and there is no control. `base` and `head` are two build
// folders, whose engines are compared by name, or the files of two engines.
VersionGate gate_builds(const Report& report, const std::string& base, const std::string& head,
                        const GateLimits& limits);

}  // namespace mkbench
