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
  std::vector<std::string> governors;  // of the processors' clocks, each once; empty: not told
};

// Files are read below `root`; the number of processors is that of this machine.
TimingConditions read_timing_conditions(const std::filesystem::path& root = "/");
nlohmann::json to_json(const TimingConditions& conditions);

// One clause each, of the machine and of a card, why times are not to be trusted; empty where they
// are.
std::vector<std::string> unfit_for_timing(const TimingConditions& conditions);
std::vector<std::string> unfit_for_timing(const GpuState& card);

// "default", or "application clocks 1410, default 1980 MHz"; empty: not told. Clocks that are locked
// (nvidia-smi -lgc) show in the readings of the samples alone.
std::string clock_setting(const GpuState& card);

}  // namespace mkbench
