// An engine of a case: what it is asked to do, how it has fared, and how failures of it become
// messages.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "harness/report/verdict.h"
#include "harness/wire/channel.h"
#include "harness/wire/interrupt.h"
#include "harness/wire/job.h"
#include "references/base/error.h"
#include "references/engine.h"

namespace mkbench {

struct Contestant : CaseEngine {
  explicit Contestant(const CaseEngine& roles) : CaseEngine(roles) {}

  std::unique_ptr<Engine> engine;
  Verdict verdict = Verdict::kSkipped;
  bool alive = true;  // no failure so far
  Snapshot start;     // after the prefill of the timed prompt
};

inline void send_verdict(MessageSink& sink, const std::string& engine, Verdict verdict,
                         const std::string& reason) {
  sink.send(VerdictGiven{engine, verdict, reason});
}

inline void send_case_verdict(MessageSink& sink, Verdict verdict, const std::string& reason) {
  sink.send(VerdictGiven{"", verdict, reason});
}

// The engine is out of the case.
inline void fail_engine(MessageSink& sink, Contestant& c, Verdict verdict,
                        const std::string& reason) {
  c.verdict = verdict;
  c.alive = false;
  send_verdict(sink, c.name, verdict, reason);
}

// Thrown where a failure of one engine leaves the process unfit for the others (a sticky CUDA
// error).
struct CaseOver {};

// Runs `work` for one engine; what it throws becomes a verdict on that engine. Defects of a
// reference concern the whole case and pass through, as do interrupts.
template <typename Work>
void guard_engine(MessageSink& sink, Contestant& c, const Work& work) {
  try {
    work();
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::kInvalidReference) throw;
    fail_engine(sink, c, verdict_of(error.kind()), error.what());
    // A failed launch or an aborted wait may leave the CUDA context poisoned for every engine.
    const bool on_gpu = c.engine && c.engine->capabilities().device.starts_with("cuda");
    if (on_gpu && (error.kind() == ErrorKind::kCuda || error.kind() == ErrorKind::kHang))
      throw CaseOver{};
  } catch (const std::bad_alloc&) {
    fail_engine(sink, c, Verdict::kEnvUnfit, c.name + ": out of host memory");
  } catch (const std::exception& error) {
    fail_engine(sink, c, Verdict::kRuntimeError, error.what());
  }
}

}  // namespace mkbench
