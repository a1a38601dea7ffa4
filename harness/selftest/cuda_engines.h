// CUDA engines for lanes of the fault table.
#pragma once

#include "harness/selftest/lanes.h"

namespace mkbench {

// Engines on card `gpu`: ring, plain, and plain's instance with fault hooks where a fault has one.
CudaEngineMaker cuda_engine_maker(int gpu);

}  // namespace mkbench
