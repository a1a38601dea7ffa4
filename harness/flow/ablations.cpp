#include "harness/flow/ablations.h"

#include <string>

#include "harness/report/report.h"

namespace mkbench {
namespace {

constexpr int kRuns = 5;  // timed runs; one run before them is not counted

struct Ablated {
  std::vector<double> runs_us;  // per token
  std::string reason;           // why there are no runs
};

Ablated time_ablation(const CaseJob& job, const FlowServices& services, Contestant& c,
                      Ablation ablation) {
  Engine& engine = *c.engine;
  Ablated result;
  result.reason = services.ablate(engine, ablation);
  if (!result.reason.empty()) return result;
  for (int run = 0; run <= kRuns; ++run) {
    if (services.stop()) throw Interrupted{};
    if (!engine.skip_to(first_depth(job))) {
      result.reason = c.name + " cannot skip to a depth without computing its KV rows";
      return result;
    }
    services.take_turn(engine);
    const TimedCall call = services.timed(engine, [&] { engine.decode(job.n_gen); });
    if (run > 0) result.runs_us.push_back(1000 * call.ms / job.n_gen);
  }
  return result;
}

// Fills in `profile`; returns why that failed, or an empty text.
std::string ablate_engine(const CaseJob& job, const FlowServices& services, Contestant& c,
                          ProgressWatch& watch, ProfileReport& profile) {
  struct Part {
    const char* stage;
    Ablation ablation;
    std::vector<double> ProfileReport::*runs;
  };
  const std::string stage = "ablations";
  for (const Part& part :
       {Part{" without waits", Ablation::kNoWaits, &ProfileReport::no_waits_runs_us},
        Part{" without loads", Ablation::kNoLoads, &ProfileReport::no_loads_runs_us}}) {
    const WatchEnd end(watch);
    watch.begin(stage + part.stage, c.name, c.engine.get());
    Ablated ablated = time_ablation(job, services, c, part.ablation);
    if (!ablated.reason.empty()) return ablated.reason;
    profile.*part.runs = std::move(ablated.runs_us);
  }
  services.ablate(*c.engine, Ablation::kNone);
  return "";
}

}  // namespace

void run_ablations(const CaseJob& job, const FlowServices& services,
                   const std::vector<Contestant*>& candidates, ProgressWatch& watch,
                   EventSink& sink) {
  std::string lost;  // why later engines are not tried: one may have poisoned the CUDA context
  for (Contestant* c : candidates) {
    ProfileReport profile;
    std::string reason = lost;
    if (job.n_prompt > 0) reason = "a prefill test has no ablations";
    if (reason.empty()) {
      try {
        reason = ablate_engine(job, services, *c, watch, profile);
      } catch (const Interrupted&) {
        throw;
      } catch (const std::exception& error) {
        reason = error.what();
        lost = "not tried after failed ablations of " + c->name;
      }
    }
    sink.send(AblationsTaken{c->name, reason, profile});
  }
}

}  // namespace mkbench
