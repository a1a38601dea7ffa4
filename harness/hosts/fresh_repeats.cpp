#include "harness/hosts/fresh_repeats.h"

#include <algorithm>

#include "harness/flow/case_flow.h"
#include "harness/flow/interrupt.h"
#include "harness/hosts/host_services.h"
#include "harness/judge/repeats.h"
#include "references/base/error.h"

namespace mkbench {

void repeat_in_fresh_processes(const CaseJob& job,
                               const std::function<std::unique_ptr<Hosts>()>& start,
                               const std::function<bool()>& stop, CaseReport& report) {
  CaseJob again = job;  // without candidates that have no repeats to compare
  std::erase_if(again.engines, [&](const CaseEngine& engine) {
    return engine.candidate &&
           std::none_of(report.engines.begin(), report.engines.end(), [&](const EngineReport& e) {
             return e.flow_name == engine.name && waits_for_repeats(e);
           });
  });
  std::vector<RepeatHashes> answers;
  std::string problem;  // why a process gave no answer
  for (int i = 0; i < kFreshProcesses && !stop(); ++i) {
    try {
      const std::unique_ptr<Hosts> fresh = start();
      EventSink silent([](const CaseEvent&) {});
      answers.push_back(hash_case_repeats(again, HostServices(again, *fresh), silent));
    } catch (const Error& error) {
      problem = error.what();
      answers.emplace_back();
    } catch (const Interrupted&) {
      // The loop ends, and the runs so far are judged.
    }
  }
  for (EngineReport& e : report.engines) {
    if (!waits_for_repeats(e)) continue;
    std::vector<FreshRun> runs;
    for (const RepeatHashes& answer : answers) {
      const auto run = answer.find(e.flow_name);
      runs.push_back(run != answer.end() ? run->second : FreshRun{"", problem});
    }
    const std::string before = e.parity->reason;
    judge_fresh_runs(runs, *e.parity);
    if (e.parity->reason == before) continue;
    if (times_allowed(e.verdict) || e.verdict == Verdict::kIncomplete)
      e.verdict = e.parity->verdict;
    e.reasons.push_back(e.parity->reason);
  }
}

}  // namespace mkbench
