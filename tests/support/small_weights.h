// Weights of a model that is as small as one can be, for tests that compute nothing.
#pragma once

#include "tests/support/random_model.h"

namespace mkbench::testing {

inline constexpr ModelShape kSmall{.hidden = 8,
                                   .intermediate = 8,
                                   .layers = 1,
                                   .heads = 2,
                                   .kv_heads = 1,
                                   .head_dim = 4,
                                   .vocab = 11};

inline const ModelWeights& small_weights() {
  static const ModelWeights weights = random_model(kSmall);
  return weights;
}

}  // namespace mkbench::testing
