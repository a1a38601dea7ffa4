// The phases of a decode step: their names for faults, timelines and reports, and the bytes that
// each must read.
#pragma once

#include <cstdint>
#include <string_view>

#include "references/model/shape.h"

namespace mkbench {

// A phase is grid-wide work between two exchanges. The enumerators are in the order of execution.
enum class Phase : int { kEmbed, kQkv, kAttention, kOProj, kGateUp, kDown, kLmHead, kCount };

struct PhaseInfo {
  Phase phase;
  std::string_view name;
  bool per_layer;
};

inline constexpr PhaseInfo kPhases[] = {
    {Phase::kEmbed, "embed", false},        {Phase::kQkv, "qkv", true},
    {Phase::kAttention, "attention", true}, {Phase::kOProj, "o_proj", true},
    {Phase::kGateUp, "gate_up", true},      {Phase::kDown, "down", true},
    {Phase::kLmHead, "lm_head", false},
};
static_assert(sizeof(kPhases) / sizeof(kPhases[0]) == static_cast<size_t>(Phase::kCount));

inline constexpr int kPhasesPerLayer =
    static_cast<int>(Phase::kLmHead) - static_cast<int>(Phase::kQkv);

// layer: -1 outside of the layers.
struct PhasePlace {
  Phase phase;
  int layer;
};

// The phase that follows the first `ended` phases of a step. The embedding does not count as a phase
// here: no exchange ends it.
constexpr PhasePlace phase_after(int64_t ended, int layers) {
  if (ended >= static_cast<int64_t>(layers) * kPhasesPerLayer) return {Phase::kLmHead, -1};
  return {static_cast<Phase>(static_cast<int>(Phase::kQkv) + ended % kPhasesPerLayer),
          static_cast<int>(ended / kPhasesPerLayer)};
}

constexpr std::string_view phase_name(Phase p) { return kPhases[static_cast<int>(p)].name; }

// Bytes of weights and KV rows (bf16) that one execution of a phase reads, with `context` KV rows
// before the step.
constexpr int64_t phase_bytes(Phase p, const ModelShape& s, int64_t context) {
  const int64_t h = s.hidden;
  switch (p) {
    case Phase::kEmbed:
      return 2 * h;
    case Phase::kQkv:
      return 2 * (h * s.qkv_width() + h);
    case Phase::kAttention:
      return 2 * (2 * s.kv_width() * context + 2 * s.head_dim);
    case Phase::kOProj:
      return 2 * h * s.q_width();
    case Phase::kGateUp:
      return 2 * (2 * h * s.intermediate + h);
    case Phase::kDown:
      return 2 * h * s.intermediate;
    case Phase::kLmHead:
      return 2 * (s.embedding_parameters() + h);
    case Phase::kCount:
      break;
  }
  return 0;
}

}  // namespace mkbench
