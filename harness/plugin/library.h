// Loads a plugin's file and checks its table before any other function of the plugin is called.
#pragma once

#include <string>

#include "references/engine_abi.h"

namespace mkbench {

// The sizes of older versions of the ABI, which are offered to a library that refuses this build's.
extern "C" const mkbench_abi_sizes mkbench_abi_v1_sizes, mkbench_abi_v2_sizes;

// Loads `path` and returns a copy of its table, in which nothing is set that the library's version of
// the ABI does not have. The library stays loaded until the process ends, because
// its own threads may still run. Throws Error(kBadInput) naming file, field, found and wanted.
mkbench_engine_abi load_plugin(const std::string& path);

}  // namespace mkbench
