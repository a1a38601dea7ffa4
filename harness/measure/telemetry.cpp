#include "harness/measure/telemetry.h"

#include <algorithm>
#include <vector>

namespace mkbench {

std::optional<double> median_sm_clock(std::span<const Telemetry* const> parts) {
  std::vector<double> clocks;
  for (const Telemetry* part : parts) {
    if (part->sm_clock_mhz) clocks.push_back(*part->sm_clock_mhz);
  }
  if (clocks.empty()) return std::nullopt;
  std::sort(clocks.begin(), clocks.end());
  return (clocks[clocks.size() / 2] + clocks[(clocks.size() - 1) / 2]) / 2;
}

std::string condition_doubt(const Telemetry& part, std::optional<double> median_sm_clock_mhz) {
  if (!part.throttled.empty()) return part.throttled;
  const bool slow = part.sm_clock_mhz && median_sm_clock_mhz &&
                    *part.sm_clock_mhz < kSlowClock * *median_sm_clock_mhz;
  return slow ? kSlowClockReason : "";
}

}  // namespace mkbench
