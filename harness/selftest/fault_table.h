// The faults that the gate must find, where each is planted, and exactly which checks must fail.
// `mkbench selftest --faults` and the tests run this list.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "references/model_row.h"
#include "references/planted_fault.h"

namespace mkbench {

// Where a fault is planted and judged.
enum class Lane {
  kGate,         // recorded logits with an edit, judged by the gate: tests the gate's own logic
  kLoader,       // edited weights against the reference's hash
  kTwin,         // the host twin, by the gate, on a trained checkpoint
  kTwinProbes,   // the host twin, by the operator probes of probes.h
  kPlain,        // plain, by the gate; if the fault needs a hook, the instance with hooks, on tiny
  kPlainProbes,  // plain with fault hooks, by the operator probes
  kRing,         // ring on four layers of a shape, with faults that need no hook
};

struct LaneInfo {
  Lane lane;
  std::string_view name;
  bool cuda;
};

// In the order of the enum.
const std::vector<LaneInfo>& lane_table();
inline const LaneInfo& lane_info(Lane lane) { return lane_table()[static_cast<size_t>(lane)]; }

// A fault or a control. The numbers follow a list of faults that public kernels have had; controls
// are named c1, c2, ...
struct FaultRow {
  std::string_view id;
  std::string_view what;
  bool control;
  // What covers the row besides its lanes, or why it has no lane: "FILE: TEXT" (a test, in a FILE
  // that holds TEXT) or "rule: WHY".
  std::string_view elsewhere;
};

const std::vector<FaultRow>& fault_rows();

struct FaultLane {
  std::string_view row;
  Lane lane;
  std::string_view plant;  // a name of planted_faults(), or of gate_faults() in kGate
  std::string_view
      model;  // a trained model ("tiny"), "four layers" of the 0.6B, or an analytic one
  std::string_view fails;  // exactly the checks or probes that must fail, separated by commas
  // R_rms on the host twin (in kGate: of the recorded logits), measured by `mkbench selftest
  // --faults` on x86-64 with AVX2, 2026-11; 0: none, or not measured.
  double r_rms;
  // All of `fails` but near_tie and strict must fail, and others may: how many tokens a fault changes
  // depends on the model.
  bool at_least = false;
};

const std::vector<FaultLane>& fault_lanes();

// Faults whose effect depends on a model's shape, to run on four layers of a model; the caller sets
// engine and model of each lane. They need no hook in a kernel, so every engine can run them.
std::span<const FaultLane> shape_faults();
// shape_faults() for four layers of `model`, an analytic one ("synthetic:qwen3-1.7b"): on a GPU in
// plain and, if `ring`, in ring; else in the host twin. The lanes keep a view of `model`.
std::vector<FaultLane> shape_lanes(std::string_view model, bool cuda, bool ring);

// The lanes of `row`, a committed model, in the host twin: its own lanes, and tiny's lane for each
// other fault that missing_for() allows; there at least tiny's checks must fail.
std::vector<FaultLane> committed_lanes(const ModelRow& row);

// The fault that a lane of an engine plants.
PlantedFault fault_of(const FaultLane& lane);

// A measured R_rms may differ from the committed one by this factor. A larger difference means that
// the gate no longer sees the fault, or that the fault is no longer planted.
inline constexpr double kValueBand = 1.5;

// Result of a lane.
struct LaneOutcome {
  std::vector<std::string> failing;  // checks or probes, in the order of their table
  std::optional<double> r_rms;
  std::string note;  // the error that stopped the lane, or the first reason of a failure
};

// How the outcome differs from the lane's row of the table; empty if it does not.
std::string surprise(const FaultLane& lane, const LaneOutcome& outcome);

}  // namespace mkbench
