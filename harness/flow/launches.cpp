#include "harness/flow/launches.h"

#include <fmt/format.h>

#include <algorithm>

#include "harness/report/report.h"

namespace mkbench {
namespace {

constexpr int kMostTracedTokens = 64;

LaunchTrace trace_engine(const CaseJob& job, const CaseServices& services, const TimedTruth& truth,
                         Contestant& c, ProgressWatch& watch) {
  const WatchEnd end(watch);
  watch.begin("launches", c.name, c.engine.get());
  start_afresh(*c.engine, truth.prompt);
  return services.trace(
      *c.engine, job.n_prompt > 0 ? kPrefillCheckTokens : std::min(job.n_gen, kMostTracedTokens));
}

// A failed trace neither confirms nor refutes the claim.
void check_claim(const Engine& engine, const LaunchTrace& trace) {
  if (!engine.capabilities().one_launch || !trace.problem.empty() || trace.launches() == 1) return;
  throw Error(ErrorKind::kIntegrity,
              fmt::format("claims one launch for a decode; {} were recorded for {} tokens",
                          trace.launches(), trace.tokens));
}

}  // namespace

void trace_launches(const CaseJob& job, const CaseServices& services, const TimedTruth& truth,
                    const std::vector<Contestant*>& engines,
                    const std::function<void(Contestant&)>& open, ProgressWatch& watch,
                    EventSink& sink) {
  for (Contestant* c : engines) {
    if (!job.cuda()) {
      sink.send(LaunchesTraced{c->name, {.problem = "no GPU"}});
      continue;
    }
    if (services.stop()) throw Interrupted{};
    guard_engine(sink, *c, [&] {
      if (!c->engine) open(*c);
      const LaunchTrace trace = trace_engine(job, services, truth, *c, watch);
      sink.send(LaunchesTraced{c->name, trace});
      check_claim(*c->engine, trace);
    });
    c->engine.reset();
  }
}

}  // namespace mkbench
