// Every row of the input tables: generates a folder, runs load_probe on it under tight limits, and
// compares exit code and message.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <set>

#include "tests/support/catch2.h"
#include "tests/support/input_case.h"
#include "tests/support/micro_model.h"

namespace mkbench::testing {
namespace {

constexpr rlim_t kAddressSpace = 256 << 20;
constexpr std::chrono::seconds kTimeLimit{60};  // a probe that hangs is killed
// Numbers of linux/capability.h: without these two capabilities, root reads only what the modes of
// its files allow.
constexpr int kCapDacOverride = 1, kCapDacReadSearch = 2;

struct Outcome {
  int exit_code = -1;  // 128 + the signal's number where one ended the program
  bool timed_out = false;
  std::string out, err;
};

[[noreturn]] void become_probe(std::vector<std::string> arguments, int out, int err) {
  dup2(out, STDOUT_FILENO);
  dup2(err, STDERR_FILENO);
#ifndef __SANITIZE_ADDRESS__  // ASan reserves terabytes of address space for its shadow
  const rlimit limit{kAddressSpace, kAddressSpace};
  setrlimit(RLIMIT_AS, &limit);
#endif
  const rlimit no_core{0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
  prctl(PR_CAPBSET_DROP, kCapDacOverride);
  prctl(PR_CAPBSET_DROP, kCapDacReadSearch);
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  execv(argv[0], argv.data());
  _exit(127);
}

// Reads both pipes until the program has closed them or the time is up.
void collect(int out, int err, Outcome& outcome) {
  const auto deadline = std::chrono::steady_clock::now() + kTimeLimit;
  pollfd pipes[2] = {{out, POLLIN, 0}, {err, POLLIN, 0}};
  while (pipes[0].fd >= 0 || pipes[1].fd >= 0) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        deadline - std::chrono::steady_clock::now());
    if (left.count() <= 0 || poll(pipes, 2, static_cast<int>(left.count())) == 0) {
      outcome.timed_out = true;
      return;
    }
    for (pollfd& pipe : pipes) {
      if (pipe.fd < 0 || pipe.revents == 0) continue;
      char buffer[4096];
      const ssize_t got = read(pipe.fd, buffer, sizeof(buffer));
      if (got > 0) {
        (pipe.fd == out ? outcome.out : outcome.err).append(buffer, static_cast<size_t>(got));
      } else {
        pipe.fd = -1;
      }
    }
  }
}

Outcome run_probe(const std::vector<std::string>& options, const std::string& folder) {
  std::vector<std::string> arguments = {MKBENCH_LOAD_PROBE};
  arguments.insert(arguments.end(), options.begin(), options.end());
  arguments.push_back(folder);
  int out[2], err[2];
  REQUIRE(pipe2(out, O_CLOEXEC) == 0);
  REQUIRE(pipe2(err, O_CLOEXEC) == 0);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) become_probe(arguments, out[1], err[1]);
  close(out[1]);
  close(err[1]);
  Outcome outcome;
  collect(out[0], err[0], outcome);
  close(out[0]);
  close(err[0]);
  if (outcome.timed_out) kill(child, SIGKILL);
  int status = 0;
  waitpid(child, &status, 0);
  outcome.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return outcome;
}

void check(const InputCase& input) {
  const TemporaryFolder folder;
  write_micro_model(folder.path());
  input.make(folder.path());
  const Outcome outcome = run_probe(input.options, folder.path().string());
  INFO(input.row << ", " << input.what << ": exit " << outcome.exit_code
                 << ", stderr: " << outcome.err.substr(0, 2000));
  CHECK_FALSE(outcome.timed_out);
  if (input.named.empty()) {
    CHECK(outcome.exit_code == 0);
    CHECK(outcome.out.starts_with("loaded "));
    CHECK(outcome.err.empty());
    return;
  }
  CHECK(outcome.exit_code == 2);
  CHECK(outcome.out.empty());
  CHECK(std::count(outcome.err.begin(), outcome.err.end(), '\n') == 1);
  CHECK(outcome.err.size() < 1200);
  for (const std::string& named : input.named) {
    INFO("must name: " << named);
    CHECK(outcome.err.find(named) != std::string::npos);
  }
}

std::vector<InputCase> all_cases() {
  std::vector<InputCase> cases = container_cases();
  for (const auto& more : {checkpoint_cases(), config_cases()})
    cases.insert(cases.end(), more.begin(), more.end());
  return cases;
}

}  // namespace

TEST_CASE("the micro model itself loads under the limits") {
  check({"-", "unchanged", [](const std::filesystem::path&) {}, {}});
}

TEST_CASE("rows S1-S39: one safetensors file") {
  for (const InputCase& input : container_cases()) check(input);
}

TEST_CASE("rows S40-S47: a checkpoint") {
  for (const InputCase& input : checkpoint_cases()) check(input);
}

TEST_CASE("rows C1-C17: config.json") {
  for (const InputCase& input : config_cases()) check(input);
}

TEST_CASE("every row of the two tables has a case") {
  // Rows that no loader can judge, with the check that does.
  const std::map<std::string, std::string> elsewhere = {
      {"C12", "an engine compares the shape with what it was compiled for"},
      {"C14", "the harness compares the wanted context with max_positions and the free memory"}};
  std::set<std::string> wanted, seen;
  for (int i = 1; i <= 47; ++i) wanted.insert("S" + std::to_string(i));
  for (int i = 1; i <= 17; ++i) wanted.insert("C" + std::to_string(i));
  for (const InputCase& input : all_cases()) seen.insert(input.row);
  for (const std::string& row : wanted) {
    INFO(row);
    CHECK(seen.contains(row) != elsewhere.contains(row));
  }
  for (const std::string& row : seen) {
    INFO(row);
    CHECK(wanted.contains(row));
  }
}

}  // namespace mkbench::testing
