// The makers of all engines that are compiled in: those that mkbench_engine() names in CMake.
#pragma once

#include <span>

#include "references/engine_maker.h"

namespace mkbench {

std::span<const EngineMaker* const> engine_makers();

}  // namespace mkbench
