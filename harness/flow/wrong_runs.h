// Turns the first wrong id of an engine's timed runs into a failed step of the report.
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

// A timed run whose ids came back.
struct TimedRun {
  Sample sample;
  int32_t last_id = 0;        // the last id of its prompt
  std::vector<int32_t> path;  // its ids, then the further ids of its state receipt
  bool dropped = false;       // clocks disagreed or the block was dropped: another run counts
};

// A timed run with a wrong id, which is the last one of `path`. pairwise_d: D of the references; 0
// if a closed form decides.
struct WrongRun {
  std::string engine;
  int32_t late_id = 0;
  std::vector<int32_t> path;
  int32_t expected = -1;
  double pairwise_d = 0;
  int process = 0;  // the process from which its prompt comes
};

// For each engine that has failed, its first run whose ids differ from the closed form.
std::vector<WrongRun> closed_form_wrongs(const std::vector<TimedRun>& runs, const TruthOf& truth_of,
                                         const std::vector<Contestant>& contestants);

// Sends a failed step for each run. If memory allows, the run is repeated beside the truth and the
// baseline, in new engines; `make` makes the contestant's engine.
void tell_wrong_runs(const CaseJob& job, const CaseServices& services, const TruthOf& truth_of,
                     const ModelWeights& weights, const std::vector<GreedyReference>& references,
                     int max_context, const std::vector<WrongRun>& wrong,
                     std::vector<Contestant>& contestants,
                     const std::function<void(Contestant&)>& make, ProgressWatch& watch,
                     EventSink& sink);

}  // namespace mkbench
