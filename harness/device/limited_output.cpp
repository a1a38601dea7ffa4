#include "harness/device/limited_output.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>

namespace mkbench {
namespace {

using ChildClock = std::chrono::steady_clock;

constexpr int kAskMs = 100;
constexpr double kFarewellSeconds = 1;  // between SIGTERM and SIGKILL

[[noreturn]] void run_in_child(const std::function<void()>& run, int out) {
  setpgid(0, 0);
  const int nothing = open("/dev/null", O_RDWR);
  dup2(nothing, STDIN_FILENO);
  dup2(nothing, STDERR_FILENO);
  dup2(out, STDOUT_FILENO);
  run();
  _exit(0);
}

// Whether the child ends within the time; it stays to be waited for, so that its group's number is not given away.
bool ends_within(pid_t child, double seconds) {
  const auto limit = ChildClock::now() + std::chrono::duration<double>(seconds);
  for (;;) {
    siginfo_t info = {};
    if (waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
        info.si_pid == child)
      return true;
    if (ChildClock::now() >= limit) return false;
    poll(nullptr, 0, kAskMs / 10);
  }
}

// Reads until the end of the pipe; false where a limit comes first.
bool read_until_end(int in, const OutputLimits& limits, std::string& text) {
  const auto limit = ChildClock::now() + std::chrono::duration<double>(limits.seconds);
  std::array<char, 4096> chunk{};
  for (;;) {
    if (ChildClock::now() >= limit || (limits.stop && limits.stop())) return false;
    pollfd waiting{.fd = in, .events = POLLIN, .revents = 0};
    if (poll(&waiting, 1, kAskMs) <= 0) continue;
    const ssize_t n = read(in, chunk.data(), chunk.size());
    if (n == 0) return true;
    if (n > 0) text.append(chunk.data(), static_cast<size_t>(n));
    if (n < 0 && errno != EINTR) return false;
  }
}

}  // namespace

LimitedOutput output_of_child(const std::function<void()>& run, const OutputLimits& limits) {
  LimitedOutput output;
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return output;
  const pid_t child = fork();
  if (child == 0) run_in_child(run, ends[1]);
  close(ends[1]);
  if (child > 0) {
    setpgid(child, child);  // whichever of the two processes comes first
    output.ended =
        !read_until_end(ends[0], limits, output.text) || !ends_within(child, kFarewellSeconds);
    if (output.ended) {
      kill(-child, SIGTERM);
      ends_within(child, kFarewellSeconds);
      kill(-child, SIGKILL);
    }
    while (waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  close(ends[0]);
  return output;
}

LimitedOutput limited_output(const std::vector<std::string>& command, const OutputLimits& limits) {
  std::vector<char*> words;
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  return output_of_child([&] { execvp(words[0], words.data()); }, limits);
}

}  // namespace mkbench
