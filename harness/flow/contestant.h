// An engine of a case: its roles, its verdict so far, and how its failures become events.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "harness/flow/interrupt.h"
#include "harness/flow/job.h"
#include "harness/report/verdict.h"
#include "references/base/error.h"
#include "references/engine.h"

namespace mkbench {

struct Contestant : CaseEngine {
  explicit Contestant(const CaseEngine& roles) : CaseEngine(roles) {}

  std::unique_ptr<Engine> engine;
  Verdict verdict = Verdict::kSkipped;
  bool alive = true;                                 // no failure so far
  bool own_weights = false, declared_bytes = false;  // as in EngineFacts
  EngineCapabilities can{};                          // as the engine said when it was opened last
  Snapshot start;                                    // after the prefill of the timed prompt
};

// Whether the case goes on to be timed: times of the baselines alone answer nothing that was asked.
inline bool worth_timing(const CaseJob& job, const std::vector<Contestant*>& engines) {
  const auto asked = [](const CaseEngine& e) { return e.candidate; };
  return job.time_anyway || std::none_of(job.engines.begin(), job.engines.end(), asked) ||
         std::any_of(engines.begin(), engines.end(),
                     [](const Contestant* c) { return c->candidate && c->alive; });
}

// Removes the engine from the case and sends its verdict.
inline void fail_engine(EventSink& sink, Contestant& c, Verdict verdict,
                        const std::string& reason) {
  c.verdict = verdict;
  c.alive = false;
  sink.send(VerdictGiven{c.name, verdict, reason});
}

// Runs `work` for one engine; an exception becomes a verdict on that engine. Defects of a reference
// concern the whole case and pass through, as do interrupts.
template <typename Work>
void guard_engine(EventSink& sink, Contestant& c, const Work& work) {
  try {
    work();
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::kInvalidReference) throw;
    fail_engine(sink, c, verdict_of(error.kind()), error.what());
  } catch (const std::bad_alloc&) {
    fail_engine(sink, c, Verdict::kEnvUnfit, c.name + ": out of host memory");
  } catch (const std::exception& error) {
    fail_engine(sink, c, Verdict::kRuntimeError, error.what());
  }
}

}  // namespace mkbench
