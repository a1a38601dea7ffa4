// How many CPU cores this process may use at a time.
#pragma once

#include <filesystem>

namespace mkbench {

// The cores of its affinity, or fewer if a control group above it has a quota of CPU time. The
// groups' files are read below `root`.
double usable_cores(const std::filesystem::path& root = "/");

}  // namespace mkbench
