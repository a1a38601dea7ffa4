// Small shapes of other families that have room for analytic weights, each with what its family has
// and Qwen3 lacks: heads of 64 with llama3 RoPE and states of 16 bits, and biases beside a kv head that
// is not planted. test_synthetic_python.py has the same.
#pragma once

#include "references/model/published.h"

namespace mkbench::testing {

inline constexpr ShapeRow kSmallAnalytic[] = {
    {"small-llama", {1024, 1536, 4, 16, 8, 64, 66000, false}, true, 5e5, 4096, 1e-5, 32},
    {"small-qwen2", {1024, 1536, 4, 10, 5, 128, 3072, false, true}, false, 1e6, 4096},
};

}  // namespace mkbench::testing
