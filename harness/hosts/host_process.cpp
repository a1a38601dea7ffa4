#include "harness/hosts/host_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <thread>
#include <utility>

#include "harness/device/process_tree.h"
#include "harness/flow/interrupt.h"
#include "harness/hosts/call_watch.h"
#include "harness/measure/statistics.h"
#include "harness/report/known_errors.h"
#include "references/base/error.h"
#include "references/base/regular_file.h"

namespace mkbench {
namespace {

// A process on a GPU may take seconds to leave its driver.
constexpr double kLongestDeathSeconds = 20;
// A host whose channel is closed leaves by itself within this time; Python runs atexit's functions.
constexpr double kLeaveSeconds = 5;
// What a host has started may clean up after it for this long: multiprocessing's resource tracker
// removes shared memory.
constexpr double kCleanSeconds = 1;
// A call past its expected_s counts as hung if it shows no progress for this long, or for half of
// expected_s if that is shorter.
constexpr double kStandstillSeconds = 10;
constexpr int kPollMs = 100;
constexpr int kCrossings = 32;

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// What the child needs between fork() and exec(), where only async-signal-safe calls are allowed.
struct ChildPlan {
  pid_t parent;
  char* const* argv;
  int call, progress, arena, output, early_stderr;
};

// Moves the descriptors out of the way first: a source may be the target of another.
[[noreturn]] void become_host(const ChildPlan& plan) {
  constexpr int kOutOfTheWay = 10;  // a limit of open files may be low
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  prctl(PR_SET_CHILD_SUBREAPER, 1);  // what it starts stays below it, also behind a dead parent
  if (getppid() != plan.parent) _exit(1);  // the parent died before prctl()
  prctl(PR_SET_PTRACER, plan.parent);      // lets the parent's gdb attach where Yama restricts that
  const int score = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
  if (score >= 0 && write(score, "500", 3) < 0) {
  }  // no error: the OOM killer then chooses by memory size alone
  const int sources[] = {plan.call, plan.progress, plan.arena, plan.output};
  const int targets[] = {kCallFd, kProgressFd, kArenaFd, kStderrFd};
  int moved[4];
  for (int i = 0; i < 4; ++i) moved[i] = fcntl(sources[i], F_DUPFD, kOutOfTheWay);
  const int early = fcntl(plan.early_stderr, F_DUPFD, kOutOfTheWay);
  for (int i = 0; i < 4; ++i) {
    dup2(moved[i], targets[i]);
    close(moved[i]);
  }
  dup2(early, STDERR_FILENO);
  dup2(early, STDOUT_FILENO);
  close(early);
  const int nothing = open("/dev/null", O_RDONLY);
  dup2(nothing, STDIN_FILENO);
  if (nothing > STDERR_FILENO) close(nothing);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  execv(plan.argv[0], plan.argv);
  const char* why = strerrordesc_np(errno);  // strerror() may take a lock
  if (write(STDERR_FILENO, why, std::strlen(why)) < 0) _exit(126);
  _exit(127);
}

}  // namespace

std::string signal_text(int signal) {
  return fmt::format("signal {} ({})", signal, strsignal(signal));
}

// A wait for one answer.
struct HostProcess::Running {
  Clock::time_point begin = Clock::now();
  Clock::time_point moved = begin;  // when progress last changed
  bool has_moved = false;
  std::optional<Clock::time_point> interrupted;
  ProgressTold last{};
};

HostProcess::HostProcess(HostCommand command) : command_(std::move(command)) { start(); }

HostProcess::~HostProcess() { close_down(); }

void HostProcess::start() {
  int calls[2] = {-1, -1}, progress[2] = {-1, -1};
  const bool sockets = socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, calls) == 0 &&
                       socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, progress) == 0;
  stderr_fd_ = memfd_create("mkbench-start", MFD_CLOEXEC);
  std::vector<char*> argv;
  for (const std::string& word : command_.argv) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  oom_kills_ = oom_kills();
  started_ = Clock::now();
  const ChildPlan plan{getpid(),    argv.data(),  calls[1],  progress[1],
                       arena_.fd(), output_.fd(), stderr_fd_};
  pid_ = sockets && stderr_fd_ >= 0 && output_.fd() >= 0 ? fork_known() : -1;
  const int error = errno;
  if (pid_ == 0) become_host(plan);
  close(calls[1]);
  close(progress[1]);
  call_fd_ = calls[0];
  progress_fd_ = progress[0];
  if (pid_ < 0) {
    close_down();  // the destructor does not run if the constructor throws
    throw Error(ErrorKind::kRuntime,
                fmt::format("no process for {}: {}", command_.holds, std::strerror(error)));
  }
  setpgid(pid_, pid_);  // also called in the child: either may run first
  if (!command_.greeting.is_null()) send_frame(call_fd_, command_.greeting);
  answers_.emplace(call_fd_);
  told_.emplace(progress_fd_);
}

void HostProcess::need_hello() {
  if (hello_) return;
  const FromHost first = wait("its start", {kStartLimitS, kStartLimitS}, {});
  const auto* hello = std::get_if<Hello>(&first);
  if (hello == nullptr) fail(ErrorKind::kRuntime, "did not begin with hello");
  if (hello->build != command_.build) {
    fail(ErrorKind::kEnvUnfit, fmt::format("is of another build: found {}, wanted {}; build all "
                                           "programs of mkbench anew",
                                           hello->build, command_.build));
  }
  hello_ = true;
  facts_ = {hello->program, pid_, 1e3 * seconds_since(started_), 0, 0};
  std::array<double, kCrossings> us{};
  for (double& one : us) {
    const Clock::time_point begin = Clock::now();
    send_frame(call_fd_, to_json(ToHost(PingCall{})));
    wait("ping", {kStartLimitS, kStartLimitS}, {});
    one = 1e6 * seconds_since(begin);
  }
  std::sort(us.begin(), us.end());
  facts_.crossing_us = us[kCrossings / 2];
  facts_.crossing_sd_us = *middle_deviation(us);  // quantiles: a process's first calls are slow
}

ProcessFacts HostProcess::facts() {
  if (alive()) need_hello();
  return facts_;
}

FromHost HostProcess::call(const ToHost& call, const CallLimit& limit,
                           const std::function<void(const std::string&)>& on_stage) {
  if (!death_.empty()) throw Error(death_kind_, death_);
  resume();
  need_hello();
  oom_kills_ = oom_kills();
  const char* what = std::visit([](const auto& one) { return one.kType; }, call);
  {
    const std::lock_guard lock(progress_mutex_);
    progress_ = {};
  }
  output_.begin_call();
  send_frame(call_fd_, to_json(call));  // if the host is gone, wait() reports it
  const Clock::time_point begin = Clock::now();
  FromHost answer = wait(what, limit, on_stage);
  output_.forward();
  const auto* failed = std::get_if<Failed>(&answer);
  if (failed == nullptr) return answer;
  if (failed->kind == ErrorKind::kHang) {
    const std::string line = post_mortem(what, seconds_since(begin), false);
    throw Error(failed->kind, fmt::format("{}; {}", failed->message, line));
  }
  if (!failed->traceback.empty()) on_traceback(*failed);
  throw Error(kind_of(failed->kind, failed->message), failed->message);
}

FromHost HostProcess::wait(const char* what, const CallLimit& limit,
                           const std::function<void(const std::string&)>& on_stage) {
  Running running;
  CallWatch watch(tell_after_s);
  for (;;) {
    const FrameReader::Got got = answers_->read(kPollMs);
    if (got == FrameReader::Got::kEnd) died(what);
    if (got == FrameReader::Got::kRubbish) {
      fail(ErrorKind::kRuntime,
           fmt::format("answered '{}' with rubbish: {}", what,
                       nlohmann::json(answers_->frame())
                           .dump(-1, ' ', true, nlohmann::json::error_handler_t::replace)));
    }
    if (got == FrameReader::Got::kFrame) {
      try {
        FromHost answer =
            answer_from_json(nlohmann::json::parse(answers_->frame(), nullptr, false));
        const auto* stage = std::get_if<StageTold>(&answer);
        if (stage == nullptr) return answer;
        if (on_stage) on_stage(stage->stage);
        running.moved = Clock::now();
        running.has_moved = true;
      } catch (const Error& error) {
        fail(ErrorKind::kRuntime,
             fmt::format("answered '{}' with rubbish: {}", what, error.what()));
      }
    }
    if (gone()) died(what);
    output_.forward();
    ask_progress(running);
    obey_interrupt(running, what);
    if (const std::string so_far = watch.look(pid_, limit, card_busy); !so_far.empty())
      on_wait(fmt::format("'{}' of {}{} takes {}", what, command_.holds, where(), so_far));
    const double waited = seconds_since(running.begin);
    if (waited - watch.excused_s() < limit.expected_s && waited < limit.longest_s) continue;
    const double still = std::min(kStandstillSeconds, limit.expected_s / 2);
    const bool moving = running.has_moved && seconds_since(running.moved) < still;
    if (moving && waited < limit.longest_s) continue;
    const std::string at = where();
    const double silent = seconds_since(running.has_moved ? running.moved : running.begin);
    if (moving) {
      fail(ErrorKind::kTimeout,
           fmt::format("still at work, killed {:.1f} s after '{}' began{}", waited, what, at));
    }
    const std::string how = fmt::format(
        "no progress for {:.1f} s, killed {:.1f} s after '{}' began{}", silent, waited, what, at);
    fail(ErrorKind::kHang, how + "; " + post_mortem(what, waited, true));
  }
}

void HostProcess::ask_progress(Running& running) {
  if (!hello_) return;
  while (told_->read(0) == FrameReader::Got::kFrame) {
    asked_progress_ = false;
    try {
      const FromHost answer =
          answer_from_json(nlohmann::json::parse(told_->frame(), nullptr, false));
      const auto* now = std::get_if<ProgressTold>(&answer);
      if (now == nullptr) continue;
      if (now->position != running.last.position || now->layer != running.last.layer ||
          now->phase != running.last.phase) {
        running.last = *now;
        running.moved = Clock::now();
        running.has_moved = true;
      }
      const std::lock_guard lock(progress_mutex_);
      progress_ = *now;
    } catch (const Error&) {
      return;  // an unreadable message does not count as progress
    }
  }
  if (!asked_progress_) asked_progress_ = write_all(progress_fd_, &kAskProgress, 1);
}

void HostProcess::obey_interrupt(Running& running, const char* what) {
  if (interrupt_count() == 0) return;
  if (!running.interrupted) running.interrupted = Clock::now();
  const bool grace_over = seconds_since(*running.interrupted) > kInterruptGraceS;
  if (interrupt_count() < 2 && !grace_over) return;
  death_ = fmt::format("the host of {} was killed during '{}' after Ctrl-C", command_.holds, what);
  kill_all(pid_);
  throw Interrupted{};
}

ProgressTold HostProcess::progress() {
  const std::lock_guard lock(progress_mutex_);
  return progress_;
}

// ", position 12, layer 3, phase o_proj", as far as the host has reported it.
std::string HostProcess::where() const {
  const std::lock_guard lock(progress_mutex_);
  std::string text;
  if (progress_.position >= 0) text += fmt::format(", position {}", progress_.position);
  if (progress_.layer >= 0) text += fmt::format(", layer {}", progress_.layer);
  if (!progress_.phase.empty()) text += ", phase " + progress_.phase;
  return text;
}

void HostProcess::stop() {
  if (!alive() || stopped_) return;
  need_hello();
  kill(-pid_, SIGSTOP);
  int status = 0;
  pid_t told = 0;
  const Clock::time_point begin = Clock::now();
  while (told == 0 && seconds_since(begin) < kLongestDeathSeconds) {
    told = waitpid(pid_, &status, WNOHANG | WUNTRACED);
    if (told == 0) std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  if (told == 0) fail(ErrorKind::kHang, "cannot be stopped");
  stopped_ = WIFSTOPPED(status);
  if (stopped_) {
    for (const ProcessSeen& one : stop_below(pid_)) stopped_below_.push_back(one.pid);
    return;
  }
  const pid_t group = std::exchange(pid_, -1);
  forget_known(group);
  kill_all(group);
  death_ = fmt::format("the host of {} {} while nothing was asked of it{}", command_.holds,
                       ending(status), output_.last_words());
}

void HostProcess::resume() {
  if (!stopped_) return;
  kill(-pid_, SIGCONT);
  for (const pid_t pid : stopped_below_) kill(pid, SIGCONT);
  stopped_below_.clear();
  stopped_ = false;
}

// Waits up to `seconds` for the end of the process; returns its status, or -1 if it has not ended.
// A second Ctrl-C ends the wait if it is interruptible.
int HostProcess::reap(double seconds, bool interruptible) {
  const Clock::time_point begin = Clock::now();
  int status = -1;
  while (pid_ > 0) {
    const pid_t ended = waitpid(pid_, &status, WNOHANG);
    if (ended == pid_ || (ended < 0 && errno == ECHILD)) {
      forget_known(pid_);
      pid_ = -1;
      end_ = status;
      return status;
    }
    if (seconds_since(begin) >= seconds || (interruptible && interrupt_count() > 1)) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return -1;
}

// True once the process has ended; a process that it started may still hold its socket open.
bool HostProcess::gone() const {
  siginfo_t info{};
  return waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
         info.si_pid == pid_;
}

// Ends the host and every process that it started, in its group (`group`) or not, also those that
// outlive it. After 20 s a process stuck in the operating system is left behind, or mkbench would
// hang too.
void HostProcess::kill_all(pid_t group) {
  if (group <= 0) return;  // kill() would signal other processes
  std::vector<ProcessSeen> below;
  if (pid_ > 0) {
    below = processes_below(pid_);
    kill(pid_, SIGKILL);
    reap(kLongestDeathSeconds);
  }
  end_orphans(std::chrono::duration<double>(kCleanSeconds), 0);
  kill(-group, SIGKILL);
  if (pid_ < 0) below.clear();  // none is stuck in the operating system with the host
  for (const ProcessSeen& one : below) kill(one.pid, SIGKILL);
  end_orphans(std::chrono::duration<double>(kLongestDeathSeconds));
}

void HostProcess::fail(ErrorKind kind, const std::string& how) {
  death_ = fmt::format("the host of {}: {}", command_.holds, how);
  death_kind_ = kind;
  kill_all(pid_);
  throw Error(kind, death_);
}

// The socket has ended. A host that closed it without dying is killed.
void HostProcess::died(const std::string& during) {
  const pid_t group = pid_;
  const int status = reap_leaving();
  const std::string how = pid_ > 0 ? "closed its channel" : ending(status);
  kill_all(group);
  if (!hello_) {
    std::string said = file_start(stderr_fd_);
    const std::string prefix = command_.argv.front() + ": ";  // printed by the loader
    if (said.starts_with(prefix)) said.erase(0, prefix.size());
    death_ = fmt::format("{} cannot start: {}", command_.argv.front(), said.empty() ? how : said);
    death_kind_ = ErrorKind::kEnvUnfit;
  } else {
    death_ = fmt::format("the host of {} {} during '{}'{}{}", command_.holds, how, during, where(),
                         output_.last_words());
    death_kind_ = kind_of(death_kind_, death_);
  }
  throw Error(death_kind_, death_);
}

// How a host ended by itself; sets the kind of its death.
std::string HostProcess::ending(int status) {
  if (status < 0 || !WIFSIGNALED(status))
    return fmt::format("left with exit status {}", status >= 0 ? WEXITSTATUS(status) : -1);
  const std::string how = "died by " + signal_text(WTERMSIG(status));
  if (WTERMSIG(status) != SIGKILL) return how;
  if (oom_kills() <= oom_kills_) return how + ", killed from outside";
  death_kind_ = ErrorKind::kEnvUnfit;
  return how + ": the kernel ended it for lack of memory";
}

void HostProcess::end(ErrorKind kind, const std::string& why) {
  death_ = why;
  death_kind_ = kind;
  close_down();
}

// reap() for a host that leaves by itself, and for its profiler, which may still write a report.
int HostProcess::reap_leaving() {
  return reap(command_.profiler_s > 0 ? command_.profiler_s : kLeaveSeconds, true);
}

int HostProcess::leave() {
  close_down();
  return end_;
}

std::string HostProcess::profiler_output() const {
  return stderr_fd_ >= 0 ? read_all(stderr_fd_) : printed_;
}

void HostProcess::close_down() {
  if (pid_ > 0) {
    resume();
    close(call_fd_);
    call_fd_ = -1;
    const pid_t group = pid_;
    reap_leaving();
    kill_all(group);
  }
  output_.forward();
  output_.close_file();
  if (command_.profiler_s > 0 && stderr_fd_ >= 0) printed_ = read_all(stderr_fd_);
  for (int* fd : {&call_fd_, &progress_fd_, &stderr_fd_}) {
    if (*fd >= 0) close(*fd);
    *fd = -1;
  }
}

}  // namespace mkbench
