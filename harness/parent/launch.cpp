#include "harness/parent/launch.h"

#include <fmt/format.h>

#include "harness/parent/supervisor.h"
#include "harness/wire/channel.h"
#include "harness/wire/interrupt.h"

namespace mkbench {

WorkerAnswer<FromHost> run_small_job(const ToHost& job, double deadline_s, DoJob in_process,
                                     bool (*is_answer)(const FromHost&)) {
  WorkerAnswer<FromHost> answer;
  const auto take = [&](const FromHost& message) {
    if (is_answer(message)) {
      answer.message = message;
    } else if (const auto* failure = std::get_if<JobFailed>(&message)) {
      answer.problem = failure->message;
      answer.kind = failure->kind;
    }
  };
  if (in_process != nullptr) {
    CallbackSink sink(take);
    in_process(job, sink);
    answer.interrupted = interrupt_count() > 0;
    return answer;
  }
  const WorkerEnd end = run_worker(job, {.deadline_s = deadline_s}, take);
  using How = WorkerEnd::How;
  answer.interrupted = end.how == How::kInterrupted;
  answer.hung = end.how == How::kHung || end.how == How::kTimedOut;
  if (answer.ok() || !answer.problem.empty()) return answer;
  answer.problem = answer.hung          ? fmt::format("no answer within {:g} s", deadline_s)
                   : answer.interrupted ? "interrupted"
                   : end.how == How::kSignalled
                       ? "the worker died by " + signal_text(end.code)
                       : fmt::format("the worker left with exit status {}", end.code);
  return answer;
}

}  // namespace mkbench
