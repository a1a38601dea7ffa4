// After the clock: the first wrong id of an engine's timed runs becomes a failed step of the report.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "harness/flow/contestant.h"
#include "harness/flow/services.h"
#include "harness/flow/timed_truth.h"
#include "harness/flow/watch.h"

namespace mkbench {

// A timed run whose ids have to be scored.
struct TimedRun {
  Sample sample;
  int32_t last_id = 0;        // what its prompt ended with
  std::vector<int32_t> path;  // its ids, and further ones of its state receipt
  bool dropped = false;       // its clocks disagreed, and another run has given the sample
};

// The wrong id is the last one of the run's path. pairwise_d: D of the references; 0 where a closed
// form decides.
struct WrongRun {
  std::string engine;
  int32_t late_id = 0;
  std::vector<int32_t> path;
  int32_t expected = -1;
  double pairwise_d = 0;
  int process = 0;  // the process whose prompt it had
};

// By the closed form, the first wrong run of each engine that has failed.
std::vector<WrongRun> closed_form_wrongs(const std::vector<TimedRun>& runs, const TruthOf& truth_of,
                                         const std::vector<Contestant>& contestants);

// Sends a failed step for each run. Where memory allows, the run is repeated beside the truth and
// the baseline, in new engines; `make` makes the contestant's engine.
void tell_wrong_runs(const CaseJob& job, const CaseServices& services, const TruthOf& truth_of,
                     const ModelWeights& weights, const std::vector<GreedyReference>& references,
                     int max_context, const std::vector<WrongRun>& wrong,
                     std::vector<Contestant>& contestants,
                     const std::function<void(Contestant&)>& make, ProgressWatch& watch,
                     EventSink& sink);

}  // namespace mkbench
