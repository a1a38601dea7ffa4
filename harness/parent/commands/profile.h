// What both kinds of `mkbench profile` share: Nsight around an engine (profile.cpp), and the kernel's own timeline
// (timeline.cpp).
#pragma once

#include <filesystem>
#include <string>

#include "harness/parent/machine.h"
#include "harness/parent/options.h"
#include "harness/parent/parent_main.h"

namespace mkbench {

// What the machine has. Printing a command for another machine's GPU needs no GPU here.
MachineProbe probe_for_profile(const Options& options, const Invocation& invocation);

// The path of an engine's files in `folder`, without their endings: none with `ending` is there yet.
std::string profile_stem(const CaseJob& job, const CaseEngine& engine,
                         const std::filesystem::path& folder, const std::string& ending);

// `mkbench profile --timeline`.
int timeline_command(const Options& options, const Invocation& invocation);
void require_timeline_arguments(Options& options);

}  // namespace mkbench
