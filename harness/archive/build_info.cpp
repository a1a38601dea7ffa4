#include "harness/archive/build_info.h"

#include <fmt/format.h>

#include "mkbench_git.h"

namespace mkbench {

BuildInfo build_info() {
  return {.version = MKBENCH_VERSION,
          .git_sha = kGitSha,
          .dirty = kGitDirty,
          .build_type = MKBENCH_BUILD_TYPE,
          .compiler = MKBENCH_COMPILER,
          .cuda_compiler = MKBENCH_CUDA_COMPILER};
}

std::string version_text() {
  const BuildInfo info = build_info();
  return fmt::format("mkbench {} ({}{}, {})", info.version, info.git_sha.substr(0, 12),
                     info.dirty ? "+" : "", info.build_type);
}

}  // namespace mkbench
