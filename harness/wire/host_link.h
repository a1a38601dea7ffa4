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

// Whether code may be compiled during a call, which takes its own time: in an engine's first call, and
// in a later one as long as the card is idle.
enum class Compiling { kNo, kFirstCall, kLaterCall };

// How long one call may take, in seconds.
struct CallLimit {
  double expected_s = 300;  // from then on the call must show progress
  double longest_s = 300;   // ends the call even while it shows progress
  // While the host computes and code may be compiled, the time does not count for expected_s.
  Compiling compiling = Compiling::kNo;
};

// Limits of a question that loads nothing: 60 s, even if the driver hangs at its first call.
inline constexpr CallLimit kQuestion{60, 60};

class HostLink {
 public:
  virtual ~HostLink() = default;

  // Called for every failure that call() throws with a traceback.
  std::function<void(const Failed&)> on_traceback = [](const Failed&) {};

  // Called for every call that stood still. If its host is then killed, this is called first.
  OnHang on_hang = [](const HangReport&) {};

  // Whether the run's card works without a pause; false if that is not known.
  std::function<bool()> card_busy = [] { return false; };
  // Called with a line about what is waited for when a call has taken tell_after_s, and whenever that
  // time has doubled.
  std::function<void(const std::string&)> on_wait = [](const std::string&) {};
  double tell_after_s = 10;

  // Makes a call and returns its answer. An answer Failed is thrown as an Error of its kind, which
  // may be kHang, and the host stays usable. StageTold goes to `on_stage`. After any other
  // exception the link is dead: Error(kHang) or Error(kTimeout) if the call reaches its limit,
  // Error(kRuntime) or Error(kEnvUnfit) if the host dies, and Interrupted after Ctrl-C.
  virtual FromHost call(const ToHost& call, const CallLimit& limit,
                        const std::function<void(const std::string&)>& on_stage = {}) = 0;
  virtual Arena& arena() = 0;
  // The host's progress when last asked for; does not wait. May be called from another thread.
  virtual ProgressTold progress() = 0;
  virtual ProcessFacts facts() = 0;
  virtual bool alive() const = 0;
  // Stops all threads of the host until the next call; returns when they stand still.
  virtual void stop() = 0;
  // Ends the host, if it lives; later calls throw an Error of this kind with this text.
  virtual void end(ErrorKind kind, const std::string& why) = 0;
};

// call() for a call with one kind of answer. Throws Error(kRuntime) for any other answer.
template <typename Answer>
Answer ask(HostLink& link, const ToHost& call, const CallLimit& limit,
           const std::function<void(const std::string&)>& on_stage = {}) {
  FromHost answer = link.call(call, limit, on_stage);
  if (auto* wanted = std::get_if<Answer>(&answer)) return std::move(*wanted);
  throw Error(ErrorKind::kRuntime, std::string("a host's answer: found another message, wanted '") +
                                       Answer::kType + "'");
}

}  // namespace mkbench
