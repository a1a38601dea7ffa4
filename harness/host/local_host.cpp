#include "harness/host/local_host.h"

#include <unistd.h>

#include "references/base/error.h"

namespace mkbench {

LocalHost::LocalHost(const HostProgram& program)
    : program_(program), server_(program, arena_, [this](const FromHost& told) {
        const auto* stage = std::get_if<StageTold>(&told);
        if (stage != nullptr && on_stage_) on_stage_(stage->stage);
      }) {}

FromHost LocalHost::call(const ToHost& call, const CallLimit&,
                         const std::function<void(const std::string&)>& on_stage) {
  on_stage_ = on_stage;
  FromHost answer = server_.answer(call);
  const auto* failed = std::get_if<Failed>(&answer);
  if (failed == nullptr) return answer;
  if (failed->kind != ErrorKind::kHang) throw Error(failed->kind, failed->message);
  HangReport report{.engine = program_.name,
                    .call = std::visit([](const auto& one) { return one.kType; }, call),
                    .line = "",
                    .answered = true,
                    .told = server_.hang()};
  explain_hang(report);
  on_hang(report);
  throw Error(failed->kind, failed->message + "; " + report.line);
}

ProcessFacts LocalHost::facts() {
  ProcessFacts facts;
  facts.program = program_.name;
  facts.pid = getpid();
  return facts;
}

}  // namespace mkbench
