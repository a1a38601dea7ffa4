// What mkbench-host-torch can do besides calling engines.
#pragma once

#include "harness/wire/calls.h"

namespace mkbench {

// Facts of the linked libtorch.
TorchTold torch_told(const TorchCall& call);

}  // namespace mkbench
