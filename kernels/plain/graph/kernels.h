// plain's phases as kernels of their own, which PhaseGraph launches one after the other.
#pragma once

#include "references/model/shape.h"

namespace mkbench::plain {

// Most rows that a block of a staged kernel takes.
inline constexpr int kMostStagedRows = 96;

// Arguments of all kernels: Phase, layer, and for how many ns a staged one pauses before it requests its
// rows. On a grid of the engine's size.
struct GraphKernel {
  const void* kernel = nullptr;
  int threads = 0;
  int shared_bytes = 0;  // dynamic; of a staged kernel without its rows
};

struct GraphKernels {
  GraphKernel registers;  // any phase of a layer, and Phase::kCount, which ends a step
  // A phase of a layer whose rows fit into shared memory; not attention. Null where no phase's rows fit.
  GraphKernel staged;
  GraphKernel head;  // the LM head
};

// The kernels for this layer shape, for cards of sm_90 and later; null kernels if none are compiled.
GraphKernels graph_kernels_for(const ModelShape& shape);
// The variable of the device code from which these kernels take their LaunchParams.
const void* graph_params_symbol();

}  // namespace mkbench::plain
