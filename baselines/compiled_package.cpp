#include "baselines/compiled_package.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <sstream>
#include <utility>
#include <vector>

#include "references/base/data_root.h"
#include "references/base/error.h"
#include "references/base/one_line.h"
#include "references/base/sha256.h"
#include "references/user_folders.h"

namespace mkbench {
namespace {

namespace fs = std::filesystem;

constexpr int kMissing = 3;  // the script's exit code if its last line says what is missing
constexpr size_t kLongestReason = 400;

fs::path script() { return data_root() / "scripts" / "compile_step.py"; }

[[noreturn]] void not_built(const std::string& why) {
  throw Error(ErrorKind::kNotBuilt, "compiled: it cannot be built here: " + why);
}

// A double as Python reads it back without loss.
std::string number_text(double value) {
  std::ostringstream text;
  text.precision(17);
  text << value;
  return text.str();
}

// The arguments of the script that decide what the package holds.
std::vector<std::string> content_arguments(const PackageKey& key) {
  const ModelShape& s = key.shape;
  std::vector<std::string> words = {
      "--device",     key.cuda ? "cuda" : "cpu", "--torch", key.torch_version,
      "--torch-cuda", key.torch_cuda_version,    "--eps",   number_text(key.eps)};
  for (const auto& [name, value] :
       {std::pair("--layers", s.layers), std::pair("--hidden", s.hidden),
        std::pair("--intermediate", s.intermediate), std::pair("--heads", s.heads),
        std::pair("--kv-heads", s.kv_heads), std::pair("--head-dim", s.head_dim),
        std::pair("--vocab", s.vocab)}) {
    words.emplace_back(name);
    words.push_back(std::to_string(value));
  }
  return words;
}

// "<cache>/compiled/cuda-sm_90-1f2e3d4c5b6a7988.pt2": the digits are a hash of everything that
// decides what the package holds, including the script's text.
fs::path place_of(const PackageKey& key) {
  const fs::path cache = user_cache_dir();
  if (cache.empty()) not_built("HOME: found it unset, wanted a folder for the package");
  std::string facts = sha256_file(script()) + " " + key.architecture;
  for (const std::string& word : content_arguments(key)) facts += " " + word;
  const std::string name = (key.cuda ? "cuda-" + key.architecture : std::string("cpu")) + "-" +
                           sha256_hex(facts.data(), facts.size()).substr(0, 16) + ".pt2";
  return cache / "compiled" / name;
}

// Runs `command` with its output in `log` and returns the status that waitpid() gives. Throws if
// the command cannot be run.
int run_logged(std::vector<std::string> command, const fs::path& log) {
  std::vector<char*> words;
  for (std::string& word : command) words.push_back(word.data());
  words.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, log.c_str(),
                                   O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0644);
  posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
  pid_t child = -1;
  const int error = posix_spawnp(&child, words[0], &actions, nullptr, words.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) {
    std::error_code ignored;
    fs::remove(log, ignored);
    not_built("cannot run " + command[0] + " (MKBENCH_PYTHON): " + std::strerror(error));
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) not_built(command[0] + ": waitpid: " + std::strerror(errno));
  }
  return status;
}

std::string last_line(const fs::path& file) {
  std::ifstream in(file);
  std::string last;
  for (std::string line; std::getline(in, line);) {
    if (line.find_first_not_of(" \t\r") != std::string::npos) last = line;
  }
  return one_line(last, kLongestReason);
}

// Throws an error with the last line of the failed script's log.
[[noreturn]] void report_failure(int status, const fs::path& log, const fs::path& kept) {
  const bool left = WIFEXITED(status);
  const std::string said = last_line(log);
  std::error_code ignored;
  if (left && WEXITSTATUS(status) == kMissing) {
    fs::remove(log, ignored);
    const std::string prefix = "compile_step.py: ";
    not_built(said.starts_with(prefix) ? said.substr(prefix.size()) : said);
  }
  fs::rename(log, kept, ignored);
  not_built(script().string() + (left ? " left with exit status " : " died by signal ") +
            std::to_string(left ? WEXITSTATUS(status) : WTERMSIG(status)) + ": " +
            (said.empty() ? "no output" : said) + "; its full output: " + kept.string());
}

void build(const PackageKey& key, const fs::path& place) {
  std::error_code error;
  fs::create_directories(place.parent_path(), error);
  if (error) not_built(place.parent_path().string() + ": " + error.message());
  std::vector<std::string> command = {python_of_scripts(), script().string()};
  for (const std::string& word : content_arguments(key)) command.push_back(word);
  for (const std::string& word :
       {std::string("--out"), place.string(), std::string("--gpu"), std::to_string(key.gpu),
        std::string("--toolkit"), std::string(MKBENCH_CUDA_TOOLKIT)})
    command.push_back(word);
  std::fprintf(stderr,
               "mkbench: compiled: AOTInductor compiles the step for this model's shape on %s, "
               "once, in one to four minutes\n",
               key.cuda ? key.architecture.c_str() : "the CPU");
  fs::path log = place, kept = place;
  log.replace_extension("." + std::to_string(getpid()) + ".log");
  kept.replace_extension(".log");
  const int status = run_logged(std::move(command), log);
  if (status != 0) report_failure(status, log, kept);
  fs::remove(log, error);
  fs::remove(kept, error);
  if (!fs::exists(place)) not_built(script().string() + " made no " + place.string());
}

}  // namespace

fs::path compiled_package(const PackageKey& key) {
  const fs::path place = place_of(key);
  if (!fs::exists(place)) build(key, place);
  return place;
}

std::string cpu_architecture() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);) {
    // x86 and Arm name the line of instruction sets differently.
    if (line.starts_with("flags") || line.starts_with("Features")) return line;
  }
  return "unknown";
}

}  // namespace mkbench
