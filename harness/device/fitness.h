// Whether the machine and its card are now fit for measuring times.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "harness/device/device_info.h"

namespace mkbench {

// The machine's other load, and how its processors choose their clocks.
struct TimingConditions {
  std::optional<double> load;          // load average of the last minute
  int processors = 0;                  // of the whole machine, like the load
  std::vector<std::string> governors;  // CPU frequency governors, each once; empty if unknown
};

// Files are read below `root`; the number of processors is always this machine's.
TimingConditions read_timing_conditions(const std::filesystem::path& root = "/");
nlohmann::json to_json(const TimingConditions& conditions);

// Reasons, one clause each, why times are not to be trusted on this machine or card; empty if there
// are none.
std::vector<std::string> unfit_for_timing(const TimingConditions& conditions);
std::vector<std::string> unfit_for_timing(const GpuState& card);

// "default", or "application clocks 1410, default 1980 MHz"; empty if unknown. It does not see
// locked clocks (nvidia-smi -lgc); they show only in the clock readings taken during samples.
std::string clock_setting(const GpuState& card);

}  // namespace mkbench
