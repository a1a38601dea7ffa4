#include "harness/selftest/fault_table.h"

#include <fmt/format.h>

#include <algorithm>

namespace mkbench {

const std::vector<LaneInfo>& lane_table() {
  static const std::vector<LaneInfo> table = {
      {Lane::kGate, "gate", false},  {Lane::kLoader, "loader", false},
      {Lane::kTwin, "twin", false},  {Lane::kTwinProbes, "twin-probes", false},
      {Lane::kPlain, "plain", true}, {Lane::kPlainProbes, "plain-probes", true},
      {Lane::kRing, "ring", true},
  };
  return table;
}

std::string surprise(const FaultLane& lane, const LaneOutcome& outcome) {
  const std::string found = fmt::format("{}", fmt::join(outcome.failing, ","));
  if (found != lane.fails) {
    return fmt::format("failing: found {}, wanted {}", found.empty() ? "none" : found,
                       lane.fails.empty() ? "none" : lane.fails);
  }
  if (lane.r_rms <= 0) return "";
  const double ratio = outcome.r_rms.value_or(0) / lane.r_rms;
  if (ratio <= kValueBand && ratio >= 1 / kValueBand) return "";
  return fmt::format("R_rms: found {:.3g}, wanted {:.3g} within a factor of {}",
                     outcome.r_rms.value_or(0), lane.r_rms, kValueBand);
}

}  // namespace mkbench
