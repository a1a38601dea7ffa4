// Faults that tests plant in an engine: errors that kernels for Qwen3 have had, or could have.
// planted_faults() is the one list of names; harness/selftest/fault_table.h says which checks must
// see each fault.
#pragma once

#include <string_view>
#include <vector>

#include "references/base/bf16.h"
#include "references/fault_kind.h"
#include "references/model/architecture.h"

namespace mkbench {

struct ModelWeights;

// Where a fault is planted; kAround: in a wrapper around the engine (faulty_engine.h).
enum class FaultSite { kHostSide, kWeights, kKernel, kAround };

struct PlantedFaultInfo {
  PlantedFault fault;
  std::string_view name;  // the word that --plant-fault takes
  FaultSite site;
};

// In the order of the enum, without kNone.
const std::vector<PlantedFaultInfo>& planted_faults();
std::string_view planted_fault_name(PlantedFault fault);  // "none" for kNone
FaultSite planted_fault_site(PlantedFault fault);         // for any fault but kNone

// The part of a model that the fault needs and this one lacks: "QK-norm"; empty if it has it.
std::string_view missing_for(PlantedFault fault, const ModelConfig& config);

// `weights` with a fault of FaultSite::kWeights in a copy of the tensors that it touches;
// unchanged, without a copy, for other faults. The `sha256` field keeps the hash of the sound
// weights; hash_weights() gives the hash of the edited ones.
ModelWeights with_planted_fault(const ModelWeights& weights, PlantedFault fault);

// What an engine rotates by: the model's own or, with kRopeTheta planted, the theta that loaders fall
// back to when they miss the key (1e4), and 1e6 for a model whose own theta is 1e4; with
// kRopeUnscaled, the model's frequencies without their scaling.
inline Rope effective_rope(Rope rope, PlantedFault fault) {
  if (fault == PlantedFault::kRopeTheta) rope.theta = rope.theta == 1e4 ? 1e6 : 1e4;
  if (fault == PlantedFault::kRopeUnscaled) rope.scaling = RopeScaling::kNone;
  return rope;
}

// The angle by which an engine's table rotates a pair at `position`: the fp32 product, as the model
// was trained, unless a fault of the table is planted.
inline float effective_angle(float frequency, int position, PlantedFault fault) {
  constexpr int kOffset = 5;
  if (fault == PlantedFault::kPositionOffset) position += kOffset;
  const float angle = frequency * static_cast<float>(position);
  return fault == PlantedFault::kAnglesBf16 ? round_to_bf16(angle) : angle;
}

}  // namespace mkbench
