// `mkbench fetch`: loads a model of the hub into the local cache, by scripts/fetch_model.py in the
// Python that mkbench was set up with.
#include "harness/cli/command_line.h"
#include "harness/cli/python_script.h"
#include "references/base/error.h"

namespace mkbench {

namespace {

void require_fetch_arguments(CommandSettings& settings) {
  if (settings.arguments.size() != 1)
    bad_usage(
        "mkbench fetch: name one model: ORG/NAME or ORG/NAME@REVISION of the hub, or smollm2-135m");
}

int fetch_command(const CommandSettings& settings, const Invocation&) {
  PythonScript script{
      .name = "fetch_model.py", .arguments = settings.arguments, .prints_result = true};
  if (settings.quiet) script.arguments.emplace_back("--quiet");
  std::string problem;
  const int status = run_script(script, problem);
  if (status < 0) throw Error(ErrorKind::kRuntime, "mkbench fetch: " + problem);
  return status;
}

}  // namespace

CommandRow fetch_row() {
  return command_row<CommandSettings>("fetch", "fetch a model of the hub into the local cache",
                                      "ORG/NAME[@REVISION]|smollm2-135m", {},
                                      require_fetch_arguments, fetch_command);
}

}  // namespace mkbench
