// `mkbench inspect`: lists everything in which a model differs from what this binary can run.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "harness/cli/command_line.h"
#include "harness/report/render.h"
#include "harness/report/render_inspection.h"

namespace mkbench {

namespace {

struct InspectSettings : CommandSettings {
  bool read_values = false;
  std::string format;
};

std::vector<Flag<InspectSettings>> inspect_flags() {
  return {flag("values",
               "Also read every weight: NaN, Inf, tensors of zeros, hashes [headers only, and the "
               "bytes of a tied head].",
               &InspectSettings::read_values),
          format_flag(&InspectSettings::format)};
}

void require_inspect_arguments(InspectSettings& settings) {
  if (settings.arguments.size() != 1)
    bad_usage(
        "mkbench inspect: name one model: a name of mkbench list models, a folder, ORG/NAME or "
        "ORG/NAME@REVISION");
}

int inspect_command(const InspectSettings& settings, const Invocation&) {
  const Inspection inspection =
      inspect_model(resolve_model(settings.arguments.front()), settings.read_values);
  if (settings.format == "json") {
    fmt::print("{}\n", dump_readable(to_json(inspection)));
  } else {
    fmt::print("{}", render_inspection(inspection));
  }
  return inspection_exit_code(inspection);
}

}  // namespace

CommandRow inspect_row() {
  return command_row<InspectSettings>(
      "inspect", "every difference between a model and what this binary can run", "MODEL",
      inspect_flags(), require_inspect_arguments, inspect_command);
}

}  // namespace mkbench
