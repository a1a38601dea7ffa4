// The makers of all engines that are compiled in: those that CMake's mkbench_engine() lists.
#pragma once

#include <span>

#include "references/engine_maker.h"

namespace mkbench {

std::span<const EngineMaker* const> engine_makers();

}  // namespace mkbench
