// Whether times that are taken on a machine now may decide anything.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "harness/device/device_info.h"

namespace mkbench {

// What else the machine does, and how its processors choose their clocks.
struct TimingConditions {
  std::optional<double> load;          // tasks that ran or waited to, mean of the last minute
  int processors = 0;                  // of the whole machine, as the load is
  std::vector<std::string> governors;  // CPU frequency governors, each once; empty: not known
};

// Files are read below `root`; the number of processors is always this machine's.
TimingConditions read_timing_conditions(const std::filesystem::path& root = "/");
nlohmann::json to_json(const TimingConditions& conditions);

// Reasons, one clause each, why times are not to be trusted on this machine or card; empty if there
// are none.
std::vector<std::string> unfit_for_timing(const TimingConditions& conditions);
std::vector<std::string> unfit_for_timing(const GpuState& card);

// "default", or "application clocks 1410, default 1980 MHz"; empty: not told. Locked clocks
// (nvidia-smi -lgc) show only in the readings of the samples.
std::string clock_setting(const GpuState& card);

}  // namespace mkbench
