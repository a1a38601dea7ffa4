// Small jobs for a host whose whole answer is one message: probes of the machine, plans, the doctor.
#pragma once

#include <optional>
#include <string>

#include "harness/wire/channel.h"
#include "harness/wire/job.h"
#include "references/base/error.h"

namespace mkbench {

template <typename Message>
struct WorkerAnswer {
  std::optional<Message> message;
  std::string problem;                   // one line, where there is no message
  ErrorKind kind = ErrorKind::kRuntime;  // of the problem
  bool hung = false;                     // killed at the deadline
  bool interrupted = false;

  bool ok() const { return message.has_value(); }
};

// Does one job in this process: what a host runs. main() hands it to the commands, so that the
// parent's library needs no engine.
using DoJob = void (*)(const ToHost& job, MessageSink& sink);

// Seconds that the examination of a machine may take: drivers that hang do so at the first call.
inline constexpr double kProbeDeadlineS = 60;

// Runs `job` in a host (in this process where `in_process` is given) and returns the message for
// which `is_answer` holds, or why there is none.
WorkerAnswer<FromHost> run_small_job(const ToHost& job, double deadline_s, DoJob in_process,
                                     bool (*is_answer)(const FromHost&));

// The message of type `Message` that `job` is answered with.
template <typename Message>
WorkerAnswer<Message> ask_worker(const ToHost& job, double deadline_s, DoJob in_process = nullptr) {
  WorkerAnswer<FromHost> any = run_small_job(job, deadline_s, in_process, [](const FromHost& m) {
    return std::holds_alternative<Message>(m);
  });
  WorkerAnswer<Message> answer{std::nullopt, any.problem, any.kind, any.hung, any.interrupted};
  if (any.message) answer.message = std::get<Message>(std::move(*any.message));
  return answer;
}

}  // namespace mkbench
