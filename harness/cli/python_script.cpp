#include "harness/cli/python_script.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "references/base/data_root.h"
#include "references/base/regular_file.h"

namespace mkbench {
namespace {

// An anonymous file that holds `text`, positioned at its start; -1 with errno on failure.
int open_text(const std::string& text) {
  const int file = memfd_create("mkbench-input", MFD_CLOEXEC);
  if (file < 0) return -1;
  for (size_t at = 0; at < text.size();) {
    const ssize_t written = write(file, text.data() + at, text.size() - at);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return close(file), -1;
    at += static_cast<size_t>(written);
  }
  lseek(file, 0, SEEK_SET);
  return file;
}

// In the child: redirects standard input and output, then runs the program, which ends with `parent`.
[[noreturn]] void become(pid_t parent, char* const* words, int input, int output) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(127);  // it died before prctl()
  if (input >= 0) dup2(input, STDIN_FILENO);
  if (output >= 0) dup2(output, STDOUT_FILENO);
  execvp(words[0], words);
  _exit(127);
}

// The words of the command; empty, with a line in `problem`, if the script is missing.
std::vector<std::string> command_of(const PythonScript& script, std::string& problem) {
  const std::filesystem::path path = data_root() / "scripts" / script.name;
  if (!std::filesystem::exists(path)) {
    problem = fmt::format("{} is not there", path.string());
    return {};
  }
  std::vector<std::string> command = {python_of_scripts(), path.string()};
  command.insert(command.end(), script.arguments.begin(), script.arguments.end());
  return command;
}

// The words as execvp() takes them; they point into `command`.
std::vector<char*> words_of(std::vector<std::string>& command) {
  std::vector<char*> words;
  for (std::string& word : command) words.push_back(word.data());
  words.push_back(nullptr);
  return words;
}

}  // namespace

std::string become_script(const PythonScript& script) {
  std::string problem;
  std::vector<std::string> command = command_of(script, problem);
  if (command.empty()) return problem;
  std::fflush(nullptr);
  execvp(command[0].c_str(), words_of(command).data());
  return fmt::format("cannot run {}: {}", command[0], std::strerror(errno));
}

int run_script(const PythonScript& script, std::string& problem) {
  std::vector<std::string> command = command_of(script, problem);
  if (command.empty()) return -1;
  const std::vector<char*> words = words_of(command);
  const int input = script.input.empty() ? -1 : open_text(script.input);
  if (input < 0 && !script.input.empty()) {
    problem = fmt::format("memfd_create: {}", std::strerror(errno));
    return -1;
  }
  const int taken = script.output == nullptr ? -1 : open_text("");
  if (taken < 0 && script.output != nullptr) {
    problem = fmt::format("memfd_create: {}", std::strerror(errno));
    if (input >= 0) close(input);
    return -1;
  }
  const int output = taken >= 0 ? taken : script.prints_result ? -1 : STDERR_FILENO;
  const pid_t parent = getpid(), child = fork();
  if (child < 0) {
    problem = fmt::format("fork: {}", std::strerror(errno));
    for (const int text : {input, taken}) {
      if (text >= 0) close(text);
    }
    return -1;
  }
  if (child == 0) become(parent, words.data(), input, output);
  if (input >= 0) close(input);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  if (taken >= 0) {
    *script.output = read_all(taken);
    close(taken);
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) != 127) return WEXITSTATUS(status);
  problem = WIFEXITED(status) ? fmt::format("cannot run {}", command[0])
                              : fmt::format("{} died by signal {}", command[0], WTERMSIG(status));
  return -1;
}

}  // namespace mkbench
