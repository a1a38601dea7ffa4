#include "harness/device/process_tree.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <set>
#include <sstream>
#include <string_view>
#include <thread>

namespace mkbench {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostOfCommand = 80;
constexpr std::chrono::seconds kLongestStop{1};
constexpr int kStillLooks = 4;  // looks in turn at which nothing moves
// States in which a process that was sent SIGSTOP starts nothing: stopped, traced, ended, or waiting
// in the kernel, from where it does not return before it is stopped.
constexpr std::string_view kStandsStill = "TtZXD";

fs::path folder_of(pid_t pid) { return fs::path("/proc") / std::to_string(pid); }

struct KnownChildren {
  std::mutex mutex;  // held during the fork: a child that can be seen is in the set
  std::set<pid_t> pids;
  KnownChildren() {
    for (const pid_t child : child_processes(getpid())) pids.insert(child);
  }
};
KnownChildren& known_children() {
  static KnownChildren known;
  return known;
}

}  // namespace

ProcessSeen process_of(pid_t pid) {
  ProcessSeen seen;
  std::string stat;
  if (!std::getline(std::ifstream(folder_of(pid) / "stat"), stat)) return seen;
  // "PID (NAME) STATE PARENT GROUP SESSION ..", where NAME may hold blanks and brackets.
  const size_t name = stat.find('('), after = stat.rfind(')');
  if (name == std::string::npos || after == std::string::npos) return seen;
  pid_t parent = 0;
  std::istringstream fields(stat.substr(after + 1));
  fields >> seen.state >> parent >> seen.group >> seen.session;
  // The state is field 3, the times are fields 14 to 17.
  std::string skipped;
  for (int field = 7; field < 14; ++field) fields >> skipped;
  double ticks = 0, one = 0;
  for (int field = 14; field <= 17 && fields >> one; ++field) ticks += one;
  seen.cpu_s = ticks / static_cast<double>(sysconf(_SC_CLK_TCK));
  seen.pid = pid;
  // Reading fails if the process has ended meanwhile, which getline() takes as an end.
  std::getline(std::ifstream(folder_of(pid) / "cmdline"), seen.command);
  std::replace(seen.command.begin(), seen.command.end(), '\0', ' ');
  if (seen.command.empty()) seen.command = stat.substr(name + 1, after - name - 1);
  if (seen.command.ends_with(' ')) seen.command.pop_back();
  seen.command.resize(std::min(seen.command.size(), kMostOfCommand));
  return seen;
}

std::vector<pid_t> child_processes(pid_t parent) {
  std::vector<pid_t> found;
  std::error_code error;
  for (fs::directory_iterator at(folder_of(parent) / "task", error), end; !error && at != end;
       at.increment(error)) {
    std::ifstream children(at->path() / "children");
    for (pid_t child = 0; children >> child;) found.push_back(child);
  }
  return found;
}

std::vector<ProcessSeen> processes_below(pid_t ancestor) {
  std::vector<ProcessSeen> found;
  std::vector<pid_t> left = child_processes(ancestor);
  while (!left.empty()) {
    const pid_t pid = left.back();
    left.pop_back();
    const std::vector<pid_t> children = child_processes(pid);
    left.insert(left.end(), children.begin(), children.end());
    if (ProcessSeen seen = process_of(pid); seen.pid != 0) found.push_back(std::move(seen));
  }
  return found;
}

std::vector<ProcessSeen> stop_below(pid_t ancestor) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point end = Clock::now() + kLongestStop;
  std::map<pid_t, ProcessSeen> stopped;
  // A look misses a process whose parent ends meanwhile, and all below it.
  for (int still = 0; still < kStillLooks && Clock::now() < end;) {
    bool moves = false;
    for (const ProcessSeen& one : processes_below(ancestor)) {
      kill(one.pid, SIGSTOP);
      stopped[one.pid] = one;
      moves = moves || kStandsStill.find(one.state) == std::string_view::npos;
    }
    still = moves ? 0 : still + 1;
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  std::vector<ProcessSeen> found;
  for (const auto& [pid, one] : stopped)
    if (process_of(pid).pid != 0) found.push_back(one);
  return found;
}

void end_children(const std::function<bool(const ProcessSeen&)>& spare,
                  std::chrono::duration<double> longest, int signal) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin = Clock::now();
  for (bool left = true; left && Clock::now() - begin < longest;) {
    left = false;
    for (const pid_t child : child_processes(getpid())) {
      if (spare(process_of(child))) continue;
      left = true;
      kill(child, signal);
      waitpid(child, nullptr, WNOHANG);
    }
    if (left) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

pid_t fork_known() {
  KnownChildren& known = known_children();
  const std::lock_guard lock(known.mutex);
  const pid_t pid = fork();
  const int error = errno;
  if (pid > 0) known.pids.insert(pid);
  errno = error;
  return pid;
}

void forget_known(pid_t pid) {
  const std::lock_guard lock(known_children().mutex);
  known_children().pids.erase(pid);
}

void end_orphans(std::chrono::duration<double> longest, int signal) {
  const auto spare = [](const ProcessSeen& child) {
    const std::lock_guard lock(known_children().mutex);
    return child.group == getpgrp() || known_children().pids.contains(child.pid);
  };
  end_children(spare, longest, signal);
}

int64_t oom_kills() {
  for (const char* path : {"/sys/fs/cgroup/memory.events", "/proc/vmstat"}) {
    std::ifstream file(path);
    int64_t count = 0;
    for (std::string key; file >> key >> count;) {
      if (key == "oom_kill") return count;
    }
  }
  return 0;
}

}  // namespace mkbench
