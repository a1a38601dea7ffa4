#include <fmt/format.h>

#include "harness/archive/recompute.h"
#include "harness/archive/run_folder.h"
#include "harness/archive/versions.h"
#include "harness/cli/run_settings.h"
#include "harness/report/render.h"

namespace mkbench {

namespace fs = std::filesystem;

namespace {

struct GateSettings : CommandSettings, GateLimits {
  std::string format;
  std::string junit;  // file; empty: none
};

std::vector<Flag<GateSettings>> gate_flags() {
  return {flag("output,o md|json|annotations=md", "Format of stdout; annotations are GitHub's.",
               &GateSettings::format, one_word_of({"md", "json", "annotations"})),
          junit_flag(&GateSettings::junit)};
}

void require_gate_arguments(GateSettings& settings) {
  if (settings.arguments.size() != 2) {
    bad_usage(fmt::format(
        "gate: found {} reports, wanted two, BASE and HEAD: report.json files or their folders",
        settings.arguments.size()));
  }
}

int gate_command(const GateSettings& settings, const Invocation&) {
  check_paths(settings.junit, "");
  const fs::path base_file = report_file(settings.arguments[0]),
                 head_file = report_file(settings.arguments[1]);
  const Report base = read_sound_report(base_file, "gate: BASE"),
               head = read_sound_report(head_file, "gate: HEAD");
  const VersionGate gate =
      gate_versions(base, base_file.string(), head, head_file.string(), settings);
  fmt::print("{}", settings.format == "json"          ? dump_readable(gate_json(gate)) + "\n"
                   : settings.format == "annotations" ? render_annotations(gate_suites(gate))
                                                      : render_gate(gate));
  if (!settings.junit.empty()) write_text(settings.junit, render_suites(gate_suites(gate)));
  return gate.exit_code;
}

}  // namespace

CommandRow gate_row() {
  return command_row<GateSettings>(
      "gate", "compare an engine's times in two reports: is HEAD slower?", "BASE HEAD",
      flags_of<GateSettings>(gate_limit_flags(), gate_flags()), require_gate_arguments,
      gate_command);
}

}  // namespace mkbench
