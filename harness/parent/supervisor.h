// The parent's side of a worker: start it apart, feed it its job, take its messages, end it when
// its time is up.
#pragma once

#include <string>

#include "harness/wire/channel.h"
#include "harness/wire/job.h"

namespace mkbench {

// How a worker ended.
struct WorkerEnd {
  enum class How {
    kExited,       // by itself; `code` is its exit status
    kSignalled,    // by signal `code`: a crash, or killed from outside
    kHung,         // killed at the deadline, silent for long
    kTimedOut,     // killed at the deadline while it still reported progress
    kInterrupted,  // after Ctrl-C, by itself or killed by the second one
  };
  How how = How::kExited;
  int code = 0;
  double seconds = 0;         // from start to end
  double silent_seconds = 0;  // since its last message
};

struct SupervisorOptions {
  std::string executable = "/proc/self/exe";
  double deadline_s = 300;
  // After Ctrl-C the running sample may end for so long before the worker is killed.
  double interrupt_grace_s = 20;
};

// Runs `executable` with the hidden worker command in a process group of its own (so that a
// terminal's Ctrl-C comes through the parent), writes `job` to its job pipe and calls `on_message`
// for each line of its message pipe. Its stdout goes to stderr. Throws Error(kRuntime) with errno's
// text when the worker cannot be started.
WorkerEnd run_worker(const ToHost& job, const SupervisorOptions& options,
                     const TakeMessage& on_message);

// A worker silent for this part of its deadline, at most ten seconds, counts as hung, not slow.
double hang_silence_s(double deadline_s);

// "signal 11 (Segmentation fault)"
std::string signal_text(int signal);

}  // namespace mkbench
