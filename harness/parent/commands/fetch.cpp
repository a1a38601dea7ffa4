// `mkbench fetch`: a model of the hub into the local cache. scripts/fetch_model.py does it, in the
// Python that mkbench was set up with.
#include "harness/parent/option_values.h"
#include "harness/parent/options.h"
#include "harness/parent/python_script.h"
#include "references/base/error.h"

namespace mkbench {

void require_fetch_arguments(Options& options) {
  if (options.arguments.size() != 1)
    bad_usage("mkbench fetch: name one model of the hub: ORG/NAME or ORG/NAME@REVISION");
}

int fetch_command(const Options& options, const Invocation&) {
  PythonScript script{
      .name = "fetch_model.py", .arguments = options.arguments, .prints_result = true};
  if (options.quiet) script.arguments.emplace_back("--quiet");
  std::string problem;
  const int status = run_script(script, problem);
  if (status < 0) throw Error(ErrorKind::kRuntime, "mkbench fetch: " + problem);
  return status;
}

}  // namespace mkbench
