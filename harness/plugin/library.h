// Loads a plugin's file and checks its table before any function of the plugin is called.
#pragma once

#include <string>

#include "references/engine_abi.h"

namespace mkbench {

// Loads `path` and returns its table. The library stays loaded until the process ends, because the
// library's own threads may still run. Throws Error(kBadInput) naming file, field, found and
// wanted.
const mkbench_engine_abi& load_plugin(const std::string& path);

// Compares the table's versions, sizes, name and functions with this build's. Throws
// Error(kBadInput).
void check_plugin_table(const mkbench_engine_abi* table, const std::string& path);

}  // namespace mkbench
