// `mkbench evidence DIR`: a folder that shows that this machine trains on its GPU, or why it does
// not. scripts/torch_evidence.py does it.
#include <fmt/format.h>

#include <filesystem>

#include "harness/parent/option_values.h"
#include "harness/parent/options.h"
#include "harness/parent/python_script.h"
#include "harness/parent/run_folder.h"
#include "references/base/data_root.h"
#include "references/base/error.h"

namespace mkbench {

void require_evidence_arguments(Options& options) {
  if (options.arguments.size() != 1)
    bad_usage("mkbench evidence: name the folder to write, as in 'mkbench evidence evidence'");
  if (is_installed()) {
    throw Error(
        ErrorKind::kEnvUnfit,
        fmt::format("mkbench evidence: found an installation in {}, wanted a build in a clone: "
                    "evidence names the hash of the sources",
                    data_root().string()));
  }
}

int evidence_command(const Options& options, const Invocation&) {
  const std::filesystem::path folder = make_output_folder(options.arguments[0], "evidence");
  PythonScript script{.name = "torch_evidence.py",
                      .arguments = {"all", folder.string(), "--gpu", std::to_string(options.gpu),
                                    "--seconds", fmt::format("{}", options.timeout_s), "--mkbench",
                                    std::filesystem::read_symlink("/proc/self/exe").string()}};
  if (options.quiet) script.arguments.emplace_back("--quiet");
  throw Error(ErrorKind::kEnvUnfit, "no evidence of training on the GPU: " + become_script(script));
}

}  // namespace mkbench
