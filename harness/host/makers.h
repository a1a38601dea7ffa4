// The makers of the engines that a program is linked with: those that CMake's mkbench_engine() lists
// for the kind of host.
#pragma once

#include <vector>

#include "references/engine_maker.h"

namespace mkbench {

std::vector<const EngineMaker*> cuda_makers();   // mkbench-host-cuda
std::vector<const EngineMaker*> torch_makers();  // mkbench-host-torch

}  // namespace mkbench
