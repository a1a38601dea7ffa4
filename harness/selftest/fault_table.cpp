#include "harness/selftest/fault_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "references/base/error.h"

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

std::vector<FaultLane> shape_lanes(std::string_view model, bool cuda, bool ring) {
  std::vector<Lane> engines = {cuda ? Lane::kPlain : Lane::kTwin};
  if (cuda && ring) engines.insert(engines.begin(), Lane::kRing);
  std::vector<FaultLane> lanes;
  for (FaultLane lane : shape_faults()) {
    for (const Lane engine : engines) {
      lane.lane = engine;
      lane.model = model;
      lanes.push_back(lane);
    }
  }
  return lanes;
}

PlantedFault fault_of(const FaultLane& lane) {
  for (const PlantedFaultInfo& info : planted_faults()) {
    if (info.name == lane.plant) return info.fault;
  }
  if (lane.plant == "none") return PlantedFault::kNone;
  throw Error(ErrorKind::kRuntime,
              "fault table: no planted fault is called '" + std::string(lane.plant) + "'");
}

std::vector<FaultLane> committed_lanes(const ModelRow& row) {
  std::vector<FaultLane> lanes;
  std::set<std::string_view> own;
  for (const FaultLane& lane : fault_lanes()) {
    if (lane.lane != Lane::kTwin || lane.model != row.name) continue;
    own.insert(lane.plant);
    lanes.push_back(lane);
  }
  for (FaultLane lane : fault_lanes()) {
    if (lane.lane != Lane::kTwin || lane.model != "tiny" || own.contains(lane.plant) ||
        !missing_for(fault_of(lane), {.shape = row.shape}).empty())
      continue;
    lane.model = row.name;
    lane.r_rms = 0;
    lane.at_least = true;
    lanes.push_back(lane);
  }
  return lanes;
}

namespace {

// True if every word of the comma-separated `wanted` is in `found`. near_tie and strict judge so few
// steps that another model may pass them with the same fault.
bool holds_all(const std::vector<std::string>& found, std::string_view wanted) {
  while (!wanted.empty()) {
    const size_t comma = std::min(wanted.find(','), wanted.size());
    const std::string_view word = wanted.substr(0, comma);
    const bool may_pass = word == "near_tie" || word == "strict";
    if (!may_pass && std::find(found.begin(), found.end(), word) == found.end()) return false;
    wanted.remove_prefix(std::min(comma + 1, wanted.size()));
  }
  return true;
}

}  // namespace

std::string surprise(const FaultLane& lane, const LaneOutcome& outcome) {
  const std::string found = fmt::format("{}", fmt::join(outcome.failing, ","));
  const bool more_may_fail = lane.at_least && !lane.fails.empty();
  if (more_may_fail ? !holds_all(outcome.failing, lane.fails) : found != lane.fails) {
    return fmt::format("failing: found {}, wanted {}{}", found.empty() ? "none" : found,
                       more_may_fail ? "at least " : "", lane.fails.empty() ? "none" : lane.fails);
  }
  if (lane.r_rms <= 0) return "";
  const double ratio = outcome.r_rms.value_or(0) / lane.r_rms;
  if (ratio <= kValueBand && ratio >= 1 / kValueBand) return "";
  return fmt::format("R_rms: found {:.3g}, wanted {:.3g} within a factor of {}",
                     outcome.r_rms.value_or(0), lane.r_rms, kValueBand);
}

}  // namespace mkbench
