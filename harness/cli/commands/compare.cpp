#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "harness/cli/commands/run.h"
#include "harness/engines/plugin_file.h"
#include "harness/engines/registry.h"
#include "harness/flow/replication.h"

namespace mkbench {

namespace fs = std::filesystem;

namespace {

// `path` in its normal form and without a slash at its end; it names the same folder.
std::string without_slash(const std::string& path) {
  const std::string normal = fs::path(path).lexically_normal().string();
  return normal.size() > 1 && normal.ends_with('/') ? normal.substr(0, normal.size() - 1) : normal;
}

void refuse_flags(const RunSettings& settings) {
  for (const char* flag : {"baseline", "resume", "list-devices", "tune"}) {
    if (was_given(settings, flag))
      bad_usage(fmt::format("compare: found --{}, which compare does not take", flag));
  }
}

// The command is a run of two candidates: BASE serves as the yardstick, and the default number of
// processes suffices for an interval, on a CPU too.
void require_compare_arguments(RunSettings& settings) {
  if (settings.arguments.size() != 2) {
    bad_usage(
        fmt::format("compare: found {} builds, wanted two, BASE and HEAD: build folders of "
                    "mkbench, or engines' files (.so, .py)",
                    settings.arguments.size()));
  }
  refuse_flags(settings);
  const std::string &base = settings.arguments[0], &head = settings.arguments[1];
  if (is_file_engine(base) != is_file_engine(head)) {
    bad_usage(fmt::format("compare: {} and {}: found a file and a folder, wanted two of a kind",
                          base, head));
  }
  std::error_code error;
  for (const std::string& build : settings.arguments) {
    if (!is_file_engine(build) && !fs::is_directory(build, error)) {
      bad_usage(
          fmt::format("compare: {}: found no such folder, wanted a build folder of mkbench "
                      "(build/release), or an engine's file (.so, .py)",
                      build));
    }
  }
  if (is_file_engine(base) && !settings.engines.empty())
    bad_usage("compare: found --engine, which names engines of build folders, and two files");
  for (const std::string& build : settings.arguments) {
    settings.builds.push_back(is_file_engine(build) ? engine_name(build) : without_slash(build));
  }
  if (settings.builds[0] == settings.builds[1]) {
    bad_usage(
        fmt::format("compare: found {} twice, wanted two builds; a copy of a build can be "
                    "compared with it",
                    settings.builds[0]));
  }
  for (const std::string& engine : settings.engines) {
    if (is_file_engine(engine))
      bad_usage(fmt::format("compare: --engine {}: found a file, wanted a name", engine));
    if (host_kind(engine) == HostKind::kPython)
      bad_usage(
          fmt::format("compare: --engine {}: found an engine in Python, wanted one that builds "
                      "have as a library",
                      engine));
  }
  if (!was_given(settings, "compare")) settings.compare = {kNoBaseline};
  if (!settings.processes && !settings.in_process)
    settings.processes = std::min(kGpuProcesses, settings.blocks.value_or(kGpuProcesses));
  check_run_settings(settings);
}

}  // namespace

CommandRow compare_row() {
  return command_row<RunSettings>(
      "compare", "time two builds in one run: is the second one slower?", "BASE HEAD",
      run_command_flags(), require_compare_arguments, run_command);
}

}  // namespace mkbench
