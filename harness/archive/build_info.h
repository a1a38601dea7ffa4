// What this binary is: version, commit, build type. The commit is looked up at build time, not at
// configure time.
#pragma once

#include <string>

namespace mkbench {

struct BuildInfo {
  std::string version;
  std::string git_sha;  // "unknown" outside a git checkout
  bool dirty = false;   // tracked files differed from the commit
  std::string build_type;
  std::string compiler;
  std::string cuda_compiler;
};

BuildInfo build_info();

// "mkbench 0.1.0 (0123456789ab, Release)"
std::string version_text();

}  // namespace mkbench
