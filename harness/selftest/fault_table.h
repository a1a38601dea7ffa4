// The faults that the gate must see, where each is planted, and exactly which checks must fail.
// One list: `mkbench selftest --faults` and its tests run it.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace mkbench {

// Where a fault is planted and judged.
enum class Lane {
  kGate,         // recorded logits with an edit; the gate's own logic
  kLoader,       // edited weights against the reference's hash
  kTwin,         // the host twin, by the gate, on a trained checkpoint
  kTwinProbes,   // the host twin, by the operator probes of probes.h
  kPlain,        // plain, with an instance that has fault hooks
  kPlainProbes,  // the same by the probes
  kRing,         // ring, four layers of its shape; faults that need no hook
};

struct LaneInfo {
  Lane lane;
  std::string_view name;
  bool cuda;
};

// In the order of the enum.
const std::vector<LaneInfo>& lane_table();
inline const LaneInfo& lane_info(Lane lane) { return lane_table()[static_cast<size_t>(lane)]; }

// A fault or a control. The numbers are those of the list of faults that public kernels have had;
// controls are named c1, c2, ...
struct FaultRow {
  std::string_view id;
  std::string_view what;
  bool control;
  // What covers the row besides its lanes, or why it has none: "FILE: TEXT" (a test; FILE holds
  // TEXT) or "rule: WHY".
  std::string_view elsewhere;
};

const std::vector<FaultRow>& fault_rows();

struct FaultLane {
  std::string_view row;
  Lane lane;
  std::string_view plant;  // a name of planted_faults(), or of gate_faults() in kGate
  std::string_view model;  // "tiny", "tiny-untied", "four layers"
  std::string_view fails;  // exactly these, by commas: names of check_table() or probe_table()
  // R_rms as measured on the host twin (recorded logits in kGate) by `mkbench selftest --faults`,
  // x86-64 with AVX2, 2026-11; 0: none, or not measured.
  double r_rms;
};

const std::vector<FaultLane>& fault_lanes();

// A measured R_rms may differ from the committed one by this factor: a gate that went blind, or a
// fault that is no longer planted, shows.
inline constexpr double kValueBand = 1.5;

// What a lane showed.
struct LaneOutcome {
  std::vector<std::string> failing;  // in the order of their table
  std::optional<double> r_rms;
  std::string note;  // what stopped it, or the first reason
};

// Why the outcome is not what the lane is to show; empty where it is.
std::string surprise(const FaultLane& lane, const LaneOutcome& outcome);

}  // namespace mkbench
