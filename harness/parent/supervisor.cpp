#include "harness/parent/supervisor.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <thread>

#include "harness/wire/interrupt.h"
#include "references/base/error.h"

namespace mkbench {
namespace {

using Clock = std::chrono::steady_clock;

// A process on a GPU may take seconds to leave its driver.
constexpr double kLongestDeathSeconds = 20;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// A pipe whose two ends close themselves and stay out of other children.
struct Pipe {
  std::array<int, 2> fd{-1, -1};
  Pipe() {
    if (pipe2(fd.data(), O_CLOEXEC) != 0) {
      throw Error(ErrorKind::kRuntime, fmt::format("pipe: {}", std::strerror(errno)));
    }
  }
  ~Pipe() {
    close_end(0);
    close_end(1);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  void close_end(int end) {
    if (fd[static_cast<size_t>(end)] >= 0) close(fd[static_cast<size_t>(end)]);
    fd[static_cast<size_t>(end)] = -1;
  }
};

// The child between fork and exec: only calls that are safe there.
[[noreturn]] void become_worker(const char* executable, char* const* arguments, int job_fd,
                                int message_fd, pid_t parent) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);  // it died before the line above
  fcntl(job_fd, F_SETFD, 0);
  fcntl(message_fd, F_SETFD, 0);
  dup2(STDERR_FILENO, STDOUT_FILENO);  // stdout is for the parent's results alone
  execv(executable, arguments);
  _exit(127);
}

pid_t start_worker(const SupervisorOptions& options, const Pipe& job, const Pipe& messages) {
  std::string program = "mkbench", command = kWorkerCommand;
  std::string job_fd = std::to_string(job.fd[0]), message_fd = std::to_string(messages.fd[1]);
  std::array<char*, 5> arguments{program.data(), command.data(), job_fd.data(), message_fd.data(),
                                 nullptr};
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child < 0) throw Error(ErrorKind::kRuntime, fmt::format("fork: {}", std::strerror(errno)));
  if (child == 0) {
    become_worker(options.executable.c_str(), arguments.data(), job.fd[0], messages.fd[1], parent);
  }
  setpgid(child, child);  // also here: whoever is first
  return child;
}

// Watches one running worker.
class Watch {
 public:
  Watch(pid_t worker, const SupervisorOptions& options, const TakeMessage& on_message)
      : worker_(worker), options_(options), on_message_(on_message) {}

  WorkerEnd run(int message_fd) {
    while (read_some(message_fd) && !unkillable()) {
      obey_interrupts();
      obey_deadline();
    }
    // A worker that has closed its pipe may still hang on its way out.
    int status = 0;
    while (waitpid(worker_, &status, WNOHANG) == 0 && !unkillable()) {
      obey_interrupts();
      obey_deadline();
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    end_.seconds = seconds_since(start_);
    end_.silent_seconds = seconds_since(last_message_);
    if (killed_) return end_;
    const bool signalled = WIFSIGNALED(status);
    end_.code = signalled ? WTERMSIG(status) : WEXITSTATUS(status);
    if (forwarded_ > 0) {
      end_.how = WorkerEnd::How::kInterrupted;
    } else {
      end_.how = signalled ? WorkerEnd::How::kSignalled : WorkerEnd::How::kExited;
    }
    return end_;
  }

 private:
  // Waits for a message for a tenth of a second; false at the end of the pipe.
  bool read_some(int fd) {
    pollfd entry{.fd = fd, .events = POLLIN, .revents = 0};
    const int ready = poll(&entry, 1, 100);
    if (ready <= 0) return ready == 0 || errno == EINTR;
    std::array<char, 65536> buffer;
    const ssize_t n = read(fd, buffer.data(), buffer.size());
    if (n < 0) return errno == EINTR;
    if (n == 0) return false;
    last_message_ = Clock::now();
    reader_.feed(buffer.data(), static_cast<size_t>(n), on_message_);
    return true;
  }

  // Killed, and still there: a process that the kernel does not let go is left behind, or mkbench
  // would hang with it.
  bool unkillable() const { return killed_ && seconds_since(killed_at_) > kLongestDeathSeconds; }

  void kill_worker(WorkerEnd::How how) {
    if (killed_) return;
    killed_ = true;
    killed_at_ = Clock::now();
    end_.how = how;
    end_.code = SIGKILL;
    kill(-worker_, SIGKILL);
    kill(worker_, SIGKILL);
  }

  void obey_interrupts() {
    const int count = interrupt_count();
    if (count > 0 && forwarded_ == 0) {
      forwarded_ = 1;
      interrupted_at_ = Clock::now();
      kill(worker_, SIGINT);
    }
    const bool grace_over =
        forwarded_ > 0 && seconds_since(interrupted_at_) > options_.interrupt_grace_s;
    if (count > 1 || grace_over) kill_worker(WorkerEnd::How::kInterrupted);
  }

  void obey_deadline() {
    if (killed_ || seconds_since(start_) < options_.deadline_s) return;
    const bool silent = seconds_since(last_message_) >= hang_silence_s(options_.deadline_s);
    kill_worker(forwarded_ > 0 ? WorkerEnd::How::kInterrupted
                : silent       ? WorkerEnd::How::kHung
                               : WorkerEnd::How::kTimedOut);
  }

  pid_t worker_;
  const SupervisorOptions& options_;
  const TakeMessage& on_message_;
  LineReader reader_;
  Clock::time_point start_ = Clock::now(), last_message_ = start_, interrupted_at_ = start_,
                    killed_at_ = start_;
  int forwarded_ = 0;
  bool killed_ = false;
  WorkerEnd end_;
};

}  // namespace

double hang_silence_s(double deadline_s) { return std::min(10.0, deadline_s / 2); }

std::string signal_text(int signal) {
  return fmt::format("signal {} ({})", signal, strsignal(signal));
}

WorkerEnd run_worker(const ToHost& job, const SupervisorOptions& options,
                     const TakeMessage& on_message) {
  Pipe job_pipe, message_pipe;
  const pid_t worker = start_worker(options, job_pipe, message_pipe);
  job_pipe.close_end(0);
  message_pipe.close_end(1);
  // A worker that dies before it has read its job shows in its exit status.
  write_all(job_pipe.fd[1], to_json(job).dump());
  job_pipe.close_end(1);
  return Watch(worker, options, on_message).run(message_pipe.fd[0]);
}

}  // namespace mkbench
