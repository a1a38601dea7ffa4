// The host twin's two inner loops: bf16 rows, fp32 arithmetic. The implementation is chosen at run
// time, once, for the processor at hand.
#pragma once

#include "references/base/bf16.h"

namespace mkbench::host_twin {

struct VectorOps {
  // y[r] = sum over c of w[r][c] * x[c], for w [rows, cols] row-major. y[r] depends on row r and x
  // only, so it has the same bits however the rows are split over blocks.
  void (*matvec)(const Bf16* w, int rows, int cols, const float* x, float* y);
  // acc[c] += sum over r of p[r] * w[r][c].
  void (*weighted_sum)(const Bf16* w, int rows, int cols, const float* p, float* acc);
};

// The fastest implementation that this processor can run.
const VectorOps& vector_ops();
// The implementation that every processor can run.
const VectorOps& portable_vector_ops();

}  // namespace mkbench::host_twin
