#include "harness/parent/launch.h"

#include <fmt/format.h>

#include "harness/parent/supervisor.h"
#include "harness/wire/channel.h"
#include "harness/wire/interrupt.h"

namespace mkbench {

WorkerAnswer ask_worker(const CaseJob& job, const std::string& type, double deadline_s,
                        DoJob in_process) {
  WorkerAnswer answer;
  const auto take = [&](const nlohmann::json& message) {
    const std::string found = message.value("type", "");
    if (found == type) {
      answer.ok = true;
      answer.message = message;
    } else if (found == "error") {
      answer.problem = message.value("message", "");
      answer.kind =
          static_cast<ErrorKind>(message.value("kind", static_cast<int>(ErrorKind::kRuntime)));
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
  if (answer.ok || !answer.problem.empty()) return answer;
  answer.problem = answer.hung          ? fmt::format("no answer within {:g} s", deadline_s)
                   : answer.interrupted ? "interrupted"
                   : end.how == How::kSignalled
                       ? "the worker died by " + signal_text(end.code)
                       : fmt::format("the worker left with exit status {}", end.code);
  return answer;
}

}  // namespace mkbench
