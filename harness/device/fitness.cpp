#include "harness/device/fitness.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <system_error>

namespace mkbench {
namespace {

// An engine and its parent process need a processor each, and the system has work too.
constexpr double kMostLoad = 0.5;  // per processor; a higher load makes times doubtful

}  // namespace

TimingConditions read_timing_conditions(const std::filesystem::path& root) {
  namespace fs = std::filesystem;
  TimingConditions found;
  found.processors = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  double load = 0;
  if (std::ifstream(root / "proc/loadavg") >> load) found.load = load;
  std::set<std::string> governors;
  std::error_code error;
  for (const fs::directory_entry& policy :
       fs::directory_iterator(root / "sys/devices/system/cpu/cpufreq", error)) {
    std::string governor;
    if (std::ifstream(policy.path() / "scaling_governor") >> governor) governors.insert(governor);
  }
  found.governors.assign(governors.begin(), governors.end());
  return found;
}

nlohmann::json to_json(const TimingConditions& conditions) {
  return {{"load", conditions.load ? nlohmann::json(*conditions.load) : nlohmann::json(nullptr)},
          {"processors", conditions.processors},
          {"governors", conditions.governors}};
}

std::vector<std::string> unfit_for_timing(const TimingConditions& conditions) {
  std::vector<std::string> why;
  const double most = kMostLoad * conditions.processors;
  if (conditions.load && *conditions.load > most) {
    why.push_back(fmt::format("load {:.1f} on {} processors (most {:g})", *conditions.load,
                              conditions.processors, most));
  }
  for (const std::string& governor : conditions.governors) {
    if (governor == "powersave") why.emplace_back("CPU governor powersave");
  }
  return why;
}

std::string clock_setting(const GpuState& card) {
  if (!card.application_sm_clock_mhz || !card.default_sm_clock_mhz) return "";
  if (*card.application_sm_clock_mhz == *card.default_sm_clock_mhz) return "default";
  return fmt::format("application clocks {}, default {} MHz", *card.application_sm_clock_mhz,
                     *card.default_sm_clock_mhz);
}

std::vector<std::string> unfit_for_timing(const GpuState& card) {
  std::vector<std::string> why;
  if (!card.processes.empty())
    why.push_back(fmt::format("{} other process(es) on the card", card.processes.size()));
  const std::string clocks = clock_setting(card);
  if (!clocks.empty() && clocks != "default")
    why.push_back("clocks of the card are set: " + clocks);
  if (card.throttle_reasons && is_throttled(*card.throttle_reasons)) {
    why.push_back(fmt::format("the card is throttled before it has work: {}",
                              throttle_text(throttling_bits(*card.throttle_reasons))));
  }
  return why;
}

}  // namespace mkbench
