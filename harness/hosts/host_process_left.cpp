#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <thread>

#include "harness/hosts/host_process.h"

namespace mkbench {
namespace {

constexpr std::chrono::seconds kLeftProcessesTime{2};

}  // namespace

std::vector<pid_t> child_processes(pid_t parent) {
  namespace fs = std::filesystem;
  std::vector<pid_t> found;
  std::error_code error;
  for (fs::directory_iterator at(fs::path("/proc") / std::to_string(parent) / "task", error), end;
       !error && at != end; at.increment(error)) {
    std::ifstream children(at->path() / "children");
    for (pid_t child = 0; children >> child;) found.push_back(child);
  }
  return found;
}

void end_left_processes(const std::vector<pid_t>& but) {
  const auto end = std::chrono::steady_clock::now() + kLeftProcessesTime;
  for (bool left = true; left && std::chrono::steady_clock::now() < end;) {
    left = false;
    for (const pid_t child : child_processes(getpid())) {
      if (std::find(but.begin(), but.end(), child) != but.end()) continue;
      left = true;
      kill(child, SIGKILL);
      waitpid(child, nullptr, WNOHANG);
    }
    if (left) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

}  // namespace mkbench
