// `mkbench fleet`: runs the cells of a plan on many cards, by scripts/fleet.py in the Python that
// mkbench was set up with. Every cell is a run of this program.
#include <fmt/format.h>

#include "harness/cli/command_line.h"
#include "harness/cli/python_script.h"
#include "references/base/data_root.h"
#include "references/base/error.h"

namespace mkbench {
namespace {

constexpr char kMerge[] = "merge";

struct FleetSettings : CommandSettings {
  std::string on;      // what runs its jobs
  std::string out;     // empty: mkbench-fleet-<time>
  std::string resume;  // folder of an interrupted fleet; empty: a new one
  bool dry_run = false;
};

std::vector<Flag<FleetSettings>> fleet_flags() {
  using F = FleetSettings;
  return {
      flag("on local|slurm|workflow=local",
           "local = one job for each GPU of this machine; slurm = a job array with one GPU each; "
           "workflow = print a matrix for a GitHub workflow and run nothing.",
           &F::on, one_word_of({"local", "slurm", "workflow"})),
      flag("out DIR", "New folder for the fleet, visible to all nodes [mkbench-fleet-<time>].",
           &F::out),
      flag("resume DIR",
           "Continue the fleet in this folder by its own plan. Finished cells are kept.",
           &F::resume),
      flag("dry-run", "Check the plan and print its cells. Runs nothing.", &F::dry_run),
  };
}

void require_fleet_arguments(FleetSettings& settings) {
  const std::vector<std::string>& words = settings.arguments;
  if (!words.empty() && words.front() == kMerge) {
    if (words.size() != 2) bad_usage("mkbench fleet merge: name one folder of a fleet");
    return;
  }
  if (!settings.resume.empty()) {
    if (!words.empty())
      bad_usage(fmt::format(
          "--resume takes the plan from its folder: found '{}' beside it, wanted no plan",
          words.front()));
    if (!settings.out.empty())
      bad_usage("--resume writes into its folder: --out does not go with it");
    if (settings.dry_run) bad_usage("--resume and --dry-run exclude each other");
    return;
  }
  if (words.size() != 1) bad_usage("mkbench fleet: name one plan, or merge and a folder");
}

int fleet_command(const FleetSettings& settings, const Invocation&) {
  PythonScript script{.name = "fleet.py", .arguments = {}};
  const auto add = [&](const std::string& flag, const std::string& value) {
    if (!value.empty()) script.arguments.insert(script.arguments.end(), {flag, value});
  };
  if (!settings.arguments.empty() && settings.arguments.front() == kMerge) {
    script.arguments = settings.arguments;
  } else {
    script.arguments = {"run"};
    script.arguments.insert(script.arguments.end(), settings.arguments.begin(),
                            settings.arguments.end());
    add("--program", (program_folder() / "mkbench").string());
    add("--on", settings.on);
    add("--out", settings.out);
    add("--resume", settings.resume);
    if (settings.dry_run) script.arguments.emplace_back("--dry-run");
  }
  if (settings.quiet) script.arguments.emplace_back("--quiet");
  throw Error(ErrorKind::kRuntime, "mkbench fleet: " + become_script(script));
}

}  // namespace

CommandRow fleet_row() {
  return command_row<FleetSettings>(
      "fleet", "run the cells of a plan on many cards, and tell a slow card from a slow kernel",
      "PLAN.toml|merge DIR", fleet_flags(), require_fleet_arguments, fleet_command);
}

}  // namespace mkbench
