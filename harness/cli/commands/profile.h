// What both kinds of `mkbench profile` share: Nsight around an engine (profile.cpp), and the
// kernel's own timeline (timeline.cpp).
#pragma once

#include <filesystem>
#include <string>

#include "harness/cli/plan_settings.h"
#include "harness/device/nsight.h"
#include "harness/hosts/machine.h"

namespace mkbench {

struct ProfileSettings : PlanSettings {
  std::optional<ProfileTool> tool;
  std::string kernel;          // the kernel whose launch ncu replays; empty: any
  int launch = 0;              // which launch ncu replays
  bool print_command = false;  // print the tool's command, and run nothing
  bool token_ranges = false;   // an NVTX range for each token
  bool timeline = false;       // what blocks do inside the kernel, without a tool
  std::string out;             // empty: mkbench-report-<time>
};

// What this machine has. --print with --device cuda needs no GPU here, and asks no host.
MachineProbe probe_for_profile(const ProfileSettings& settings, const Invocation& invocation);

// A path in `folder` for an engine's files, without ending; no file with `ending` exists there yet.
std::string profile_stem(const CaseJob& job, const CaseEngine& engine,
                         const std::filesystem::path& folder, const std::string& ending);

// `mkbench profile --timeline`.
int timeline_command(const ProfileSettings& settings, const Invocation& invocation);
void require_timeline_arguments(ProfileSettings& settings);

}  // namespace mkbench
