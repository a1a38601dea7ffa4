#include "harness/cli/run_settings.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "harness/archive/build_info.h"
#include "harness/archive/run_folder.h"
#include "harness/report/render.h"
#include "references/base/error.h"
#include "references/base/json_fields.h"

namespace mkbench {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// Options that say what is printed and where; a resumed run may change them.
constexpr std::array<std::string_view, 10> kFree = {"out",     "resume",       "output",  "junit",
                                                    "plot",    "parity-table", "dry-run", "quiet",
                                                    "verbose", "list-devices"};
// Options that take effect before the report is read, so a resumed run must be given them again.
constexpr std::array<std::string_view, 2> kEarly = {"python", "in-process"};

template <size_t N>
bool is_among(std::string_view name, const std::array<std::string_view, N>& names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

void check_run_settings(RunSettings& settings) {
  if (settings.tune && !(settings.baseline.empty() && settings.save_baseline.empty())) {
    bad_usage(
        "--tune gives each run a pace of its own, so it goes with no baseline: put the row into "
        "kernels/ring/tuning.cpp");
  }
  if (settings.baseline.empty() && settings.builds.empty()) {
    for (const char* flag : {"max-regress", "fail-on"}) {
      if (was_typed(settings, flag)) bad_usage(fmt::format("--{} goes with --baseline", flag));
    }
  }
  check_plan_settings(settings);
  if (!settings.resume.empty()) {
    if (settings.dry_run) bad_usage("--resume and --dry-run exclude each other");
    if (was_given(settings, "only")) bad_usage("--resume and --only exclude each other");
  }
}

void require_parity_arguments(RunSettings& settings) {
  settings.whole_parity = true;
  if (settings.only && settings.models.empty() && !settings.only->model.empty())
    settings.models = {settings.only->model};
  if (settings.only && settings.truth == TruthChoice::kAuto)
    settings.truth = settings.only->truth == "transformers"  ? TruthChoice::kTransformers
                     : settings.only->truth == "dequantised" ? TruthChoice::kDequantised
                                                             : TruthChoice::kAuto;
  if (settings.only && settings.engines.empty() && !settings.only->engine.empty())
    settings.engines = {settings.only->engine};
  check_run_settings(settings);
}

RunSettings resumed_settings(const RunSettings& given, const Resumption& resumption) {
  RunSettings settings = given;
  const json& meta = resumption.before().meta;
  const json recorded = meta.contains("options") ? meta["options"] : json::object();
  const auto row = std::find_if(command_rows().begin(), command_rows().end(),
                                [&](const CommandRow& r) { return r.name == given.command; });
  for (const Flag<CommandSettings>& flag : row->flags) {
    if (is_among(flag.name, kFree)) continue;
    const std::string name(flag.name);
    const auto at = std::find_if(settings.values.begin(), settings.values.end(),
                                 [&](const OptionValue& v) { return v.name == name; });
    const bool stands = at != settings.values.end();
    const bool recorded_here = recorded.contains(name) && recorded[name].is_object();
    const std::string wanted = recorded_here ? json_text(recorded[name], {"value"}) : "";
    if ((stands && at->source != "default") || is_among(flag.name, kEarly)) {
      const std::string found = stands ? at->text : "";
      if (found == wanted) continue;
      resumption.refuse("--" + name, found.empty() ? "nothing" : found,
                        (wanted.empty() ? "nothing" : wanted) + " as in the interrupted run");
    }
    if (wanted.empty()) continue;
    flag.set(settings, wanted);
    const OptionValue value{name, wanted, json_text(recorded[name], {"source"})};
    if (stands) {
      *at = value;
    } else {
      settings.values.push_back(value);
    }
  }
  settings.max_blocks =
      std::max(settings.max_blocks,
               settings.blocks.value_or(std::max(kDefaultBlocks, settings.processes.value_or(1))));
  const json prompt_seed = meta.value("prompt_seed", json());
  if (!prompt_seed.is_number_unsigned())
    resumption.refuse("meta.prompt_seed", json_fields::shown(prompt_seed), "a whole number");
  settings.prompt_seed = prompt_seed.get<uint64_t>();
  resumption.check_files(settings.engines);
  return settings;
}

nlohmann::json describe_run(const PlanSettings& settings, const std::vector<std::string>& argv,
                            const std::string& output) {
  const BuildInfo build = build_info();
  std::vector<std::string> shown = argv;  // the report does not show the program's folder
  if (!shown.empty()) shown[0] = fs::path(shown[0]).filename().string();
  nlohmann::json meta = describe_identity(settings.command, settings.engines);
  meta.update({{"argv", shown},
               {"started", utc_now("%Y-%m-%dT%H:%M:%SZ")},
               {"version", build.version},
               {"git_sha", build.git_sha},
               {"dirty", build.dirty},
               {"build_type", build.build_type},
               {"compiler", build.compiler},
               {"cuda_compiler", build.cuda_compiler},
               {"seed", settings.seed},
               {"prompt_seed", settings.prompt_seed},
               {"output", output},
               {"options", options_to_json(settings)}});
  return meta;
}

void check_paths(const std::string& junit, const std::string& reference) {
  if (!junit.empty()) {
    const fs::path folder = fs::path(junit).parent_path();
    if (!folder.empty() && !fs::is_directory(folder)) {
      throw Error(ErrorKind::kBadInput,
                  fmt::format("--junit {}: there is no folder {}", junit, folder.string()));
    }
    if (fs::is_directory(junit)) {
      throw Error(ErrorKind::kBadInput,
                  fmt::format("--junit {}: found a folder, wanted a file", junit));
    }
    if (access(folder.empty() ? "." : folder.c_str(), W_OK) != 0) {
      throw Error(ErrorKind::kBadInput, fmt::format("--junit {}: cannot write to its folder: {}",
                                                    junit, std::strerror(errno)));
    }
  }
  if (!reference.empty() && !fs::is_directory(reference)) {
    throw Error(ErrorKind::kBadInput,
                fmt::format("--reference {}: found {}, wanted a folder that holds "
                            "<model>/reference*.json",
                            reference, fs::exists(reference) ? "a file" : "nothing"));
  }
}

}  // namespace mkbench
