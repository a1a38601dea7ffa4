// RoPE scaled as Llama 3's.
#pragma once

#include "references/model/architecture.h"

namespace mkbench::testing {

inline Rope llama3_rope(double theta, double factor, int original_positions) {
  return {.theta = theta,
          .scaling = RopeScaling::kLlama3,
          .factor = factor,
          .low_freq_factor = 1,
          .high_freq_factor = 4,
          .original_positions = original_positions};
}

}  // namespace mkbench::testing
