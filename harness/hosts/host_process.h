// A host as a process: started, called within limits, stopped, and ended with all that it started.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "harness/hosts/host_output.h"
#include "harness/wire/channel.h"
#include "harness/wire/host_link.h"

namespace mkbench {

struct HostCommand {
  std::vector<std::string> argv;  // program and arguments
  std::string build;              // the build that its hello must name
  std::string holds;              // what messages call it: "ring", "the judge's runs"
  nlohmann::json greeting{};      // a frame that the host gets before it says hello; null: none
  // Above 0: argv begins with a profiler, which runs the host as its child and may take this many
  // seconds to write its report after the host has ended.
  double profiler_s = 0;
};

// How long a host may take to say hello, in seconds.
inline constexpr double kStartLimitS = 120;
// How long the running call may go on after Ctrl-C before its host is killed, in seconds.
inline constexpr double kInterruptGraceS = 20;

// Forks at once and waits for hello at the first call, so that several hosts start side by side.
// The host ends with the thread that made this object (PDEATHSIG): hosts belong to the parent's
// main thread, or to a thread that ends all its hosts.
class HostProcess final : public HostLink {
 public:
  // Throws Error(kRuntime) with errno's text if no process can be made.
  explicit HostProcess(HostCommand command);
  // Ends the host: closes its socket, then kills all that it started.
  ~HostProcess() override;
  HostProcess(const HostProcess&) = delete;
  HostProcess& operator=(const HostProcess&) = delete;

  FromHost call(const ToHost& call, const CallLimit& limit,
                const std::function<void(const std::string&)>& on_stage = {}) override;
  Arena& arena() override { return arena_; }
  ProgressTold progress() override;
  ProcessFacts facts() override;
  bool alive() const override { return pid_ > 0 && death_.empty(); }
  void stop() override;
  void end(ErrorKind kind, const std::string& why) override;

  pid_t pid() const { return pid_; }
  // Ends the host by closing its channel, and waits for the started process: the profiler, or the
  // host itself. Returns how that process ended, as waitpid() gives it.
  int leave();
  // What a profiler has printed; a host's own output goes to the parent's stderr.
  std::string profiler_output() const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Running;

  void start();
  void close_down();
  void need_hello();
  FromHost wait(const char* what, const CallLimit& limit,
                const std::function<void(const std::string&)>& on_stage);
  void ask_progress(Running& running);
  std::string post_mortem(const char* what, double seconds, bool killed);
  std::optional<HangTold> ask_hang();
  void obey_interrupt(Running& running, const char* what);
  void resume();
  void kill_all(pid_t group);
  int reap(double seconds, bool interruptible = false);
  int reap_leaving();
  bool gone() const;
  [[noreturn]] void fail(ErrorKind kind, const std::string& how);
  [[noreturn]] void died(const std::string& during);
  std::string ending(int status);
  std::string where() const;

  const HostCommand command_;
  Arena arena_;
  HostOutput output_;  // what the host prints after its hello
  int call_fd_ = -1, progress_fd_ = -1, stderr_fd_ = -1;
  pid_t pid_ = -1;
  int end_ = -1;  // how the process ended, as waitpid() gives it; -1 while it lives
  std::vector<pid_t> stopped_below_;  // what stop() has stopped beside the host
  std::string printed_;               // what the profiler had printed when it ended
  bool hello_ = false, stopped_ = false, asked_progress_ = false;
  int64_t oom_kills_ = 0;  // oom_kills() when the running call began
  std::string death_;      // why the host has ended; empty while it lives
  ErrorKind death_kind_ = ErrorKind::kRuntime;
  std::optional<FrameReader> answers_, told_;
  Clock::time_point started_;
  ProcessFacts facts_;
  mutable std::mutex progress_mutex_;
  ProgressTold progress_;
};

// "signal 11 (Segmentation fault)"
std::string signal_text(int signal);

}  // namespace mkbench
