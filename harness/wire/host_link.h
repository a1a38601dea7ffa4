// A parent's link to a host: a process behind a socket, or (mkbench-all) a server in this process.
// Proxies of engines call both in the same way.
#pragma once

#include <functional>
#include <string>

#include "harness/report/report.h"
#include "harness/wire/arena.h"
#include "harness/wire/calls.h"
#include "harness/wire/hang_report.h"

namespace mkbench {

// How long one call may take, in seconds.
struct CallLimit {
  double expected_s = 300;  // from then on the call must show progress
  double longest_s = 300;   // ends it even while it shows progress
};

// Limits of a question that loads nothing: 60 s, also for a driver that hangs at its first call.
inline constexpr CallLimit kQuestion{60, 60};

class HostLink {
 public:
  virtual ~HostLink() = default;

  // Called for every failure that call() throws with a traceback.
  std::function<void(const Failed&)> on_traceback = [](const Failed&) {};

  // Called for every call that stood still, before its host is killed.
  OnHang on_hang = [](const HangReport&) {};

  // Calls and returns the answer, which is never Failed or StageTold: these are thrown as Error and
  // given to `on_stage`. Throws Error with the kind of the failure; kHang or kTimeout where the
  // call reached its limit, kRuntime or kEnvUnfit where the host has died, and Interrupted after
  // Ctrl-C. After kHang, kTimeout and a death the link is dead.
  virtual FromHost call(const ToHost& call, const CallLimit& limit,
                        const std::function<void(const std::string&)>& on_stage = {}) = 0;
  virtual Arena& arena() = 0;
  // Where the host was when it was last asked; does not wait. May be called from another thread.
  virtual ProgressTold progress() = 0;
  virtual ProcessFacts facts() = 0;
  virtual bool alive() const = 0;
  // Stops all threads of the host until the next call; returns when they stand still.
  virtual void stop() = 0;
  // Ends the host; later calls throw an Error of this kind with this text.
  virtual void end(ErrorKind kind, const std::string& why) = 0;
};

// call() for a call with one kind of answer. Throws Error(kRuntime) for another answer.
template <typename Answer>
Answer ask(HostLink& link, const ToHost& call, const CallLimit& limit,
           const std::function<void(const std::string&)>& on_stage = {}) {
  FromHost answer = link.call(call, limit, on_stage);
  if (auto* wanted = std::get_if<Answer>(&answer)) return std::move(*wanted);
  throw Error(ErrorKind::kRuntime, std::string("a host's answer: found another message, wanted '") +
                                       Answer::kType + "'");
}

}  // namespace mkbench
