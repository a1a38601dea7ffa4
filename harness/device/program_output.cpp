#include "harness/device/program_output.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <sstream>
#include <string_view>
#include <system_error>

#include "harness/device/process_tree.h"

namespace mkbench {
namespace {

using ChildClock = std::chrono::steady_clock;

constexpr int kAskMs = 100;
constexpr double kFarewellSeconds = 1;  // for a program to end after its output, or after SIGTERM

[[noreturn]] void become(pid_t parent, char* const* words, int out, bool own_group) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(127);  // it died before prctl()
  if (own_group) setpgid(0, 0);
  const int nothing = open("/dev/null", O_RDWR);
  dup2(nothing, STDIN_FILENO);
  dup2(nothing, STDERR_FILENO);
  dup2(out, STDOUT_FILENO);
  execvp(words[0], words);
  _exit(errno == EACCES ? 126 : 127);
}

// Whether the child ends in time. Does not reap it, so that its group id is not reused.
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

// Reads until the end of the pipe; false if a limit or a read error comes first.
bool read_until_end(int in, const OutputLimits& limits, std::string& text) {
  const auto limit = ChildClock::now() + std::chrono::duration<double>(limits.seconds);
  std::array<char, 4096> chunk{};
  for (;;) {
    if ((limits.seconds > 0 && ChildClock::now() >= limit) || (limits.stop && limits.stop()))
      return false;
    pollfd waiting{.fd = in, .events = POLLIN, .revents = 0};
    if (poll(&waiting, 1, kAskMs) <= 0) continue;
    const ssize_t n = read(in, chunk.data(), chunk.size());
    if (n == 0) return true;
    if (n > 0) text.append(chunk.data(), static_cast<size_t>(n));
    if (n < 0 && errno != EINTR) return false;
  }
}

// The word in single quotes, so that a shell changes nothing in it.
std::string shell_quoted(const std::string& word) {
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? "'\\''" : std::string(1, c);
  return text + "'";
}

}  // namespace

ProgramOutput program_output(const std::vector<std::string>& command, const OutputLimits& limits) {
  const bool limited = limits.seconds > 0 || limits.stop;
  std::vector<char*> words;
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  ProgramOutput output;
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return output;
  const pid_t parent = getpid();
  const pid_t child = fork_known();  // an ending host does not take it for its own
  if (child == 0) become(parent, words.data(), ends[1], limited);
  close(ends[1]);
  if (child > 0) {
    if (limited) setpgid(child, child);  // in child and parent, because either may run first
    const bool read_all = read_until_end(ends[0], limits, output.text);
    output.ended = limited && (!read_all || !ends_within(child, kFarewellSeconds));
    if (output.ended) {
      kill(-child, SIGTERM);
      ends_within(child, kFarewellSeconds);
      kill(-child, SIGKILL);
    }
    while (waitpid(child, &output.end, 0) < 0 && errno == EINTR) {
    }
    forget_known(child);
  }
  close(ends[0]);
  return output;
}

std::string shell_text(const std::vector<std::string>& command) {
  constexpr std::string_view kPlain = "-_./,:=+@%";
  const auto is_plain = [&](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || kPlain.find(c) != kPlain.npos;
  };
  std::string text;
  for (const std::string& word : command) {
    const bool plain = !word.empty() && std::all_of(word.begin(), word.end(), is_plain);
    text += (text.empty() ? "" : " ") + (plain ? word : shell_quoted(word));
  }
  return text;
}

std::vector<std::filesystem::path> path_folders() {
  std::vector<std::filesystem::path> folders;
  const char* path = std::getenv("PATH");
  std::istringstream names(path != nullptr ? path : "");
  for (std::string folder; std::getline(names, folder, ':');) {
    if (!folder.empty()) folders.emplace_back(folder);
  }
  return folders;
}

std::string find_in(const std::vector<std::filesystem::path>& folders, const std::string& name) {
  for (const std::filesystem::path& folder : folders) {
    const std::filesystem::path file = folder / name;
    std::error_code error;
    if (std::filesystem::is_regular_file(file, error) && access(file.c_str(), X_OK) == 0)
      return file.string();
  }
  return "";
}

}  // namespace mkbench
