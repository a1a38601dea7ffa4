// The parent's side of a host: start it as a process, send its job, take its messages, kill it at
// its deadline.
#pragma once

#include <string>

#include "harness/wire/channel.h"
#include "harness/wire/job.h"

namespace mkbench {

// How a host ended.
struct WorkerEnd {
  enum class How {
    kExited,       // ended by itself; `code` is its exit status
    kSignalled,    // ended by signal `code`: a crash, or killed from outside
    kHung,         // killed at the deadline after a long silence
    kTimedOut,     // killed at the deadline while it still reported progress
    kInterrupted,  // ended after Ctrl-C, or was killed by a second Ctrl-C
  };
  How how = How::kExited;
  int code = 0;
  double seconds = 0;         // from start to end
  double silent_seconds = 0;  // since its last message
};

struct SupervisorOptions {
  std::string executable = "/proc/self/exe";
  double deadline_s = 300;
  // How long the running sample may go on after Ctrl-C before the host is killed.
  double interrupt_grace_s = 20;
};

// Runs `executable` with the hidden command in a process group of its own (so that a terminal's
// Ctrl-C comes through the parent), writes `job` to the host's job pipe and calls `on_message` for
// each line of its message pipe. The host's stdout goes to stderr. Throws Error(kRuntime) with
// errno's text when the host cannot be started.
WorkerEnd run_worker(const ToHost& job, const SupervisorOptions& options,
                     const TakeMessage& on_message);

// Seconds of silence (a part of the deadline, at most ten) after which a host at its deadline
// counts as hung, not slow.
double hang_silence_s(double deadline_s);

// "signal 11 (Segmentation fault)"
std::string signal_text(int signal);

}  // namespace mkbench
