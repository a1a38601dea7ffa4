// Loads a plugin's file and checks its table before any other function of the plugin is called.
#pragma once

#include <string>

#include "references/engine_abi.h"

namespace mkbench {

// Loads `path` and returns a copy of its table. The library stays loaded until the process ends,
// because its threads may still run. Throws Error(kBadInput) naming file, field, found and wanted.
mkbench_engine_abi load_plugin(const std::string& path);

}  // namespace mkbench
