// plain's phases as kernels of their own, which PhaseGraph launches one after the other.
#pragma once

#include "references/model/shape.h"

namespace mkbench::plain {

struct GraphKernel {
  const void* kernel = nullptr;  // arguments: Phase (kCount ends a step), layer
  int threads = 0;
  int shared_bytes = 0;  // dynamic
};

// The kernel for this layer shape, for cards of sm_90 and later; a null kernel if none is compiled.
GraphKernel graph_kernel_for(const ModelShape& shape);
// The variable of the device code from which these kernels take their LaunchParams.
const void* graph_params_symbol();

}  // namespace mkbench::plain
