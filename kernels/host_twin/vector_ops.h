// The two inner loops of the host twin over bf16 rows, in fp32. Chosen once for the processor that
// runs them.
#pragma once

#include "references/base/bf16.h"

namespace mkbench::host_twin {

struct VectorOps {
  // y[r] = sum over c of w[r][c] * x[c], for w [rows, cols] row-major. A row's result depends on
  // that row and x alone, never on how rows were split.
  void (*matvec)(const Bf16* w, int rows, int cols, const float* x, float* y);
  // acc[c] += sum over r of p[r] * w[r][c].
  void (*weighted_sum)(const Bf16* w, int rows, int cols, const float* p, float* acc);
};

// The fastest that this processor runs.
const VectorOps& vector_ops();
// What every processor runs.
const VectorOps& portable_vector_ops();

}  // namespace mkbench::host_twin
