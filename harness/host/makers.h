// Makers of the engines that a host is linked with. CMake's mkbench_engine() lists them for each
// kind of host.
#pragma once

#include <vector>

#include "references/engine_maker.h"

namespace mkbench {

std::vector<const EngineMaker*> cuda_makers();   // mkbench-host-cuda
std::vector<const EngineMaker*> torch_makers();  // mkbench-host-torch

}  // namespace mkbench
