// Small jobs for a host, answered with one message: probes of the machine, plans, the doctor.
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
  std::string problem;                   // one line, set where there is no message
  ErrorKind kind = ErrorKind::kRuntime;  // kind of the problem
  bool hung = false;                     // killed at the deadline
  bool interrupted = false;

  bool ok() const { return message.has_value(); }
};

// The function with which a host does its job, for doing a job in this process. main() passes it to
// the commands, so that the parent's library links no engine.
using DoJob = void (*)(const ToHost& job, MessageSink& sink);

// Deadline in seconds for probing a machine: a driver that hangs does so at the first call.
inline constexpr double kProbeDeadlineS = 60;

// Runs `job` in a host (in this process where `in_process` is given) and returns the message for
// which `is_answer` holds, or why there is none.
WorkerAnswer<FromHost> run_small_job(const ToHost& job, double deadline_s, DoJob in_process,
                                     bool (*is_answer)(const FromHost&));

// Runs `job` like run_small_job() and returns its answer, a message of type `Message`.
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
