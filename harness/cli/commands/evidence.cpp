// `mkbench evidence DIR`: fills a folder that shows that this machine trains on its GPU, or why it
// does not. The work is done by scripts/torch_evidence.py.
#include <fmt/format.h>

#include <filesystem>

#include "harness/archive/run_folder.h"
#include "harness/cli/plan_settings.h"
#include "harness/cli/python_script.h"
#include "references/base/data_root.h"
#include "references/base/error.h"

namespace mkbench {

namespace {

void require_evidence_arguments(CardSettings& settings) {
  if (settings.arguments.size() != 1)
    bad_usage("mkbench evidence: name the folder to write, as in 'mkbench evidence evidence'");
  if (is_installed()) {
    throw Error(
        ErrorKind::kEnvUnfit,
        fmt::format("mkbench evidence: found an installation in {}, wanted a build in a clone: "
                    "evidence names the hash of the sources",
                    data_root().string()));
  }
}

int evidence_command(const CardSettings& settings, const Invocation&) {
  const std::filesystem::path folder = make_output_folder(settings.arguments[0], "evidence");
  PythonScript script{.name = "torch_evidence.py",
                      .arguments = {"all", folder.string(), "--gpu", std::to_string(settings.gpu),
                                    "--seconds", fmt::format("{}", settings.timeout_s), "--mkbench",
                                    std::filesystem::read_symlink("/proc/self/exe").string()}};
  if (settings.quiet) script.arguments.emplace_back("--quiet");
  throw Error(ErrorKind::kEnvUnfit, "no evidence of training on the GPU: " + become_script(script));
}

}  // namespace

CommandRow evidence_row() {
  return command_row<CardSettings>(
      "evidence", "show that this machine trains on its GPU, or why it does not", "DIR",
      card_flags(), require_evidence_arguments, evidence_command);
}

}  // namespace mkbench
