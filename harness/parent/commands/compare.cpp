#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "harness/engines/plugin_file.h"
#include "harness/engines/registry.h"
#include "harness/flow/replication.h"
#include "harness/parent/option_values.h"
#include "harness/parent/options.h"

namespace mkbench {

namespace fs = std::filesystem;

namespace {

// A folder with a slash behind it is the same folder.
std::string without_slash(const std::string& path) {
  const std::string normal = fs::path(path).lexically_normal().string();
  return normal.size() > 1 && normal.ends_with('/') ? normal.substr(0, normal.size() - 1) : normal;
}

void refuse_flags(const Options& options) {
  for (const char* flag : {"baseline", "resume", "list-devices"}) {
    if (was_given(options, flag))
      bad_usage(fmt::format("compare: found --{}, which goes with run", flag));
  }
}

}  // namespace

// The command is a run of two candidates: BASE takes the place of a yardstick, and the default is as many
// processes as an interval needs, on a CPU too.
void require_compare_arguments(Options& options) {
  if (options.arguments.size() != 2) {
    bad_usage(
        fmt::format("compare: found {} builds, wanted two, BASE and HEAD: build folders of "
                    "mkbench, or engines' files (.so, .py)",
                    options.arguments.size()));
  }
  refuse_flags(options);
  const std::string &base = options.arguments[0], &head = options.arguments[1];
  if (is_file_engine(base) != is_file_engine(head)) {
    bad_usage(fmt::format("compare: {} and {}: found a file and a folder, wanted two of a kind",
                          base, head));
  }
  std::error_code error;
  for (const std::string& build : options.arguments) {
    if (!is_file_engine(build) && !fs::is_directory(build, error)) {
      bad_usage(
          fmt::format("compare: {}: found no such folder, wanted a build folder of mkbench "
                      "(build/release), or an engine's file (.so, .py)",
                      build));
    }
  }
  if (is_file_engine(base) && !options.engines.empty())
    bad_usage("compare: found --engine, which names engines of build folders, and two files");
  for (const std::string& build : options.arguments) {
    options.builds.push_back(is_file_engine(build) ? build : without_slash(build));
  }
  if (options.builds[0] == options.builds[1]) {
    bad_usage(
        fmt::format("compare: found {} twice, wanted two builds; a copy of a build can be "
                    "compared with it",
                    options.builds[0]));
  }
  for (const std::string& engine : options.engines) {
    if (is_file_engine(engine))
      bad_usage(fmt::format("compare: --engine {}: found a file, wanted a name", engine));
  }
  if (!was_given(options, "compare")) options.compare = {kNoBaseline};
  if (!options.processes && !options.in_process)
    options.processes = std::min(kGpuProcesses, options.blocks.value_or(kGpuProcesses));
}

}  // namespace mkbench
