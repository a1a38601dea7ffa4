#include "harness/device/nsight.h"

#include <fmt/format.h>

#include <sstream>

#include "harness/device/ncu.h"
#include "harness/measure/byte_counts.h"
#include "harness/measure/kernel_figures.h"
#include "harness/measure/ncu_table.h"
#include "harness/measure/range_label.h"

namespace mkbench {
namespace {

// Sections that show what limits a memory-bound kernel: DRAM and L2 with the chart of all levels,
// the reasons for stalled warps in total and per line of code, and the launch's resources.
constexpr const char* kSections[] = {
    "SpeedOfLight",
    "MemoryWorkloadAnalysis",
    "MemoryWorkloadAnalysis_Chart",
    "MemoryWorkloadAnalysis_Tables",
    "SchedulerStats",
    "WarpStateStats",
    "SourceCounters",
    "LaunchStats",
    "Occupancy",
};

// ncu replays one launch as often as its counters need. Kernel replay puts back the device memory
// that the kernel has written, so every pass decodes the same tokens. The clocks are left alone: at
// ncu's base clock a kernel that is bound by memory would look bound by its instructions.
std::vector<std::string> ncu_command(const NsightRun& run) {
  std::vector<std::string> command = {run.program,
                                      "--target-processes",
                                      "all",
                                      "--replay-mode",
                                      "kernel",
                                      "--launch-count",
                                      "1",
                                      "--nvtx",
                                      "--nvtx-include",
                                      fmt::format("{}@{}/", kNvtxDomain, run.range),
                                      "--clock-control",
                                      "none"};
  if (!run.kernel.empty()) command.insert(command.end(), {"--kernel-name", run.kernel});
  if (run.launch > 0) command.insert(command.end(), {"--launch-skip", std::to_string(run.launch)});
  for (const char* section : kSections) {
    command.emplace_back("--section");
    command.emplace_back(section);
  }
  command.emplace_back("--metrics");
  command.push_back(
      fmt::format("{},{},{},{}", kDramMetric, kL2HitMetric, kDurationMetric, kDramShareMetric));
  command.emplace_back("--export");
  command.push_back(run.output);
  return command;
}

// mkbench does not register its ranges' messages with NVTX, and nsys ignores such ranges unless the
// variable of --env-var is 0. The host goes on after the range, and ends by itself.
std::vector<std::string> nsys_command(const NsightRun& run) {
  return {run.program,
          "profile",
          "--trace=cuda,nvtx",
          "--sample=none",
          "--cpuctxsw=none",
          "--capture-range=nvtx",
          fmt::format("--nvtx-capture={}@{}", run.range, kNvtxDomain),
          "--env-var=NSYS_NVTX_PROFILER_REGISTER_ONLY=0",
          "--capture-range-end=stop",
          "--kill=none",
          fmt::format("--output={}", run.output)};
}

}  // namespace

std::string_view tool_name(ProfileTool tool) { return tool == ProfileTool::kNcu ? "ncu" : "nsys"; }

std::string_view product_name(ProfileTool tool) {
  return tool == ProfileTool::kNcu ? "Nsight Compute" : "Nsight Systems";
}

std::string find_tool(ProfileTool tool) {
  return tool == ProfileTool::kNcu ? find_ncu() : find_nsys();
}

std::string report_file(const NsightRun& run) {
  return run.output + (run.tool == ProfileTool::kNcu ? ".ncu-rep" : ".nsys-rep");
}

std::vector<std::string> tool_command(const NsightRun& run) {
  return run.tool == ProfileTool::kNcu ? ncu_command(run) : nsys_command(run);
}

std::string open_command(const NsightRun& run) {
  return fmt::format("{} {}", run.tool == ProfileTool::kNcu ? "ncu-ui" : "nsys-ui",
                     report_file(run));
}

std::string tool_complaint(const std::string& output) {
  if (std::string error = ncu_error(output); !error.empty()) return error;
  std::istringstream lines(output);
  std::string last;
  for (std::string line; std::getline(lines, line);) {
    const size_t begin = line.find_first_not_of(" \t\r");
    if (begin != std::string::npos) last = line.substr(begin);
  }
  return last;
}

bool counters_forbidden(const std::string& output) {
  return output.find("ERR_NVGPUCTRPERM") != std::string::npos;
}

}  // namespace mkbench
