#include <fmt/format.h>

#include "harness/parent/option_values.h"
#include "harness/parent/options.h"
#include "harness/parent/recompute.h"
#include "harness/parent/run_folder.h"
#include "harness/parent/versions.h"
#include "harness/report/render.h"

namespace mkbench {

namespace fs = std::filesystem;

void require_gate_arguments(Options& options) {
  if (options.arguments.size() != 2) {
    bad_usage(fmt::format(
        "gate: found {} reports, wanted two, BASE and HEAD: report.json files or their folders",
        options.arguments.size()));
  }
}

int gate_command(const Options& options, const Invocation&) {
  check_paths(options);
  const fs::path base_file = report_file(options.arguments[0]),
                 head_file = report_file(options.arguments[1]);
  const Report base = read_sound_report(base_file, "gate: BASE"),
               head = read_sound_report(head_file, "gate: HEAD");
  const VersionGate gate = gate_versions(base, base_file.string(), head, head_file.string(),
                                         {options.max_regress, options.fails_inconclusive});
  const bool json = options.format == "json";
  fmt::print("{}", json ? dump_readable(gate_json(gate)) + "\n" : render_gate(gate));
  if (!options.junit.empty()) write_text(options.junit, render_suites(gate_suites(gate)));
  return gate.exit_code;
}

}  // namespace mkbench
