// `mkbench inspect`: everything in which a model differs from what this binary can run.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "harness/parent/option_values.h"
#include "harness/parent/options.h"
#include "harness/report/render.h"
#include "harness/report/render_inspection.h"

namespace mkbench {

void require_inspect_arguments(Options& options) {
  if (options.arguments.size() != 1)
    bad_usage(
        "mkbench inspect: name one model: a name of mkbench list models, a folder, ORG/NAME or "
        "ORG/NAME@REVISION");
}

int inspect_command(const Options& options, const Invocation&) {
  const Inspection inspection =
      inspect_model(resolve_model(options.arguments.front()), options.read_values);
  if (options.format == "json") {
    fmt::print("{}\n", dump_readable(to_json(inspection)));
  } else {
    fmt::print("{}", render_inspection(inspection));
  }
  return inspection_exit_code(inspection);
}

}  // namespace mkbench
