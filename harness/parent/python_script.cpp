#include "harness/parent/python_script.h"

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

namespace mkbench {
namespace {

std::string python_of_scripts() {
  const char* given = std::getenv("MKBENCH_PYTHON");
  return given != nullptr && *given != '\0' ? given : MKBENCH_BUILD_PYTHON;
}

}  // namespace

int run_script(const PythonScript& script, std::string& problem) {
  const std::filesystem::path path =
      std::filesystem::path(MKBENCH_SOURCE_DIR) / "scripts" / script.name;
  if (!std::filesystem::exists(path)) {
    problem = fmt::format("{} is not there", path.string());
    return -1;
  }
  std::vector<std::string> command = {python_of_scripts(), path.string()};
  command.insert(command.end(), script.arguments.begin(), script.arguments.end());
  std::vector<char*> words;
  for (std::string& word : command) words.push_back(word.data());
  words.push_back(nullptr);
  const pid_t child = fork();
  if (child < 0) {
    problem = fmt::format("fork: {}", std::strerror(errno));
    return -1;
  }
  if (child == 0) {
    if (!script.prints_result) dup2(STDERR_FILENO, STDOUT_FILENO);
    execvp(words[0], words.data());
    _exit(127);
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  if (WIFEXITED(status) && WEXITSTATUS(status) != 127) return WEXITSTATUS(status);
  problem = WIFEXITED(status) ? fmt::format("cannot run {}", command[0])
                              : fmt::format("{} died by signal {}", command[0], WTERMSIG(status));
  return -1;
}

}  // namespace mkbench
