// `mkbench fleet`: the cells of a plan on many cards. scripts/fleet.py does it, in the Python that
// mkbench was set up with; every cell is a run of this program.
#include <fmt/format.h>

#include "harness/parent/option_values.h"
#include "harness/parent/options.h"
#include "harness/parent/python_script.h"
#include "references/base/data_root.h"
#include "references/base/error.h"

namespace mkbench {
namespace {

constexpr char kMerge[] = "merge";

}  // namespace

void require_fleet_arguments(Options& options) {
  const std::vector<std::string>& words = options.arguments;
  if (!words.empty() && words.front() == kMerge) {
    if (words.size() != 2) bad_usage("mkbench fleet merge: name one folder of a fleet");
    return;
  }
  if (!options.resume.empty()) {
    if (!words.empty())
      bad_usage(fmt::format(
          "--resume goes on by the plan of its folder: found '{}' beside it, wanted no plan",
          words.front()));
    if (!options.out.empty())
      bad_usage("--resume writes into its folder: --out does not go with it");
    return;
  }
  if (words.size() != 1) bad_usage("mkbench fleet: name one plan, or merge and a folder");
}

int fleet_command(const Options& options, const Invocation&) {
  PythonScript script{.name = "fleet.py", .arguments = {}};
  const auto add = [&](const std::string& flag, const std::string& value) {
    if (!value.empty()) script.arguments.insert(script.arguments.end(), {flag, value});
  };
  if (!options.arguments.empty() && options.arguments.front() == kMerge) {
    script.arguments = options.arguments;
  } else {
    script.arguments = {"run"};
    script.arguments.insert(script.arguments.end(), options.arguments.begin(),
                            options.arguments.end());
    add("--program", (program_folder() / "mkbench").string());
    add("--on", options.fleet_on);
    add("--out", options.out);
    add("--resume", options.resume);
    if (options.dry_run) script.arguments.emplace_back("--dry-run");
  }
  if (options.quiet) script.arguments.emplace_back("--quiet");
  throw Error(ErrorKind::kRuntime, "mkbench fleet: " + become_script(script));
}

}  // namespace mkbench
