// `mkbench evidence DIR`: a folder that shows that this machine trains on its GPU, or why it does
// not. scripts/torch_evidence.py measures; the boxes of README.md are computed from its files.
#include <fmt/format.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "harness/flow/interrupt.h"
#include "harness/parent/build_info.h"
#include "harness/parent/evidence_boxes.h"
#include "harness/parent/option_values.h"
#include "harness/parent/options.h"
#include "harness/parent/python_script.h"
#include "harness/parent/run_folder.h"
#include "harness/report/report.h"
#include "harness/report/verdict.h"
#include "references/base/data_root.h"
#include "references/base/error.h"
#include "references/base/sha256.h"

namespace mkbench {
namespace {

namespace fs = std::filesystem;

struct Part {
  const char* name;  // as the script calls it
  const char* file;
  std::string EvidenceTexts::*text;
  const char* told;  // for stderr
};

constexpr std::array kParts = {
    Part{"environment", "env_info.txt", &EvidenceTexts::environment, "what this machine has"},
    Part{"check", "torch_cuda_check.txt", &EvidenceTexts::check, "what torch sees of the card"},
    Part{"train", "training_log.txt", &EvidenceTexts::training,
         "50 steps on the card, then on the CPU"},
};
constexpr char kSmiFile[] = "nvidia_smi.txt";

std::string read_all(const fs::path& path) {
  std::ifstream in(path);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

// Runs one part. What the script could not write itself, because it did not start or was ended,
// becomes the last line of its file.
void run_part(const Part& part, const fs::path& folder, const Options& options) {
  if (!options.quiet) fmt::print(stderr, "mkbench: evidence: {}\n", part.told);
  PythonScript script{
      .name = "torch_evidence.py",
      .arguments = {part.name, folder.string(), "--gpu", std::to_string(options.gpu), "--seconds",
                    fmt::format("{}", options.timeout_s)}};
  if (part.text == &EvidenceTexts::environment) {
    script.arguments.insert(script.arguments.end(),
                            {"--mkbench", fs::read_symlink("/proc/self/exe").string()});
  }
  std::string problem;
  const int status = run_script(script, problem);
  if (interrupt_count() > 0) throw Interrupted{};
  if (status == 0) return;
  const std::string text = read_all(folder / part.file);
  if (text.starts_with("problem: ") || text.find("\nproblem: ") != std::string::npos) return;
  if (status > 0) problem = fmt::format("{} ended with exit code {}", script.name, status);
  write_text(folder / part.file, fmt::format("{}problem: {}\n", text, problem));
}

std::string list_files(const fs::path& folder) {
  std::string text = "\n## Files\n\n| file | bytes | sha256 |\n|---|--:|---|\n";
  const auto row = [&](const char* name) {
    const fs::path path = folder / name;
    if (fs::exists(path))
      text += fmt::format("| {} | {} | {} |\n", name, fs::file_size(path), sha256_file(path));
  };
  for (const Part& part : kParts) row(part.file);
  row(kSmiFile);
  return text;
}

}  // namespace

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
  const fs::path folder = make_output_folder(options.arguments[0], "evidence");
  EvidenceTexts texts;
  for (const Part& part : kParts) {
    run_part(part, folder, options);
    texts.*part.text = read_all(folder / part.file);
  }
  texts.smi = read_all(folder / kSmiFile);
  const std::string boxes = render_evidence(texts);
  fmt::print("{}\n", boxes);
  write_text(folder / "README.md",
             fmt::format("# Evidence: training on the GPU\n\n`mkbench evidence` has computed these "
                         "boxes from the files beside them, {}, {}.\n\n{}{}",
                         utc_now("%Y-%m-%dT%H:%M:%SZ"), version_text(), boxes, list_files(folder)));
  fmt::print("evidence: {}\n", folder.string());
  if (evidence_complete(texts)) return 0;
  fmt::print(stderr, "mkbench: error: no evidence of training on the GPU: {}\n",
             evidence_advice(texts));
  return exit_code(Verdict::kEnvUnfit);
}

}  // namespace mkbench
