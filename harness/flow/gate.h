// The gate of a case: finds the references for the weights and judges by them, first the judge (the
// engine that parity compares with) and then each other engine.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "harness/flow/contestant.h"
#include "harness/flow/job.h"
#include "harness/flow/services.h"
#include "harness/flow/watch.h"
#include "harness/judge/sweep.h"

namespace mkbench {

// The references that judge a case.
struct CaseReferences {
  // References with logits, and one that merges all token-only ones. Empty for a live case until
  // the live reference is made.
  std::vector<GreedyReference> all;
  bool live = false;       // a truth has to be (or was) computed in this run
  std::string live_check;  // live_check_text(); empty until the closed form has confirmed the truth
};

// Finds the committed references that fit `weights`, or decides to judge live.
// Throws Error(kInvalidReference) if a model that should have a committed reference has none, if
// --require-reference finds none (naming the command that makes one), or if a reference was made
// from other weights or contradicts the closed form.
CaseReferences find_case_references(const CaseJob& job, const CaseServices& services,
                                    const ModelWeights& weights);

// The prompts of `references` that fit into `positions`, and the names of the others. A reference is
// left out if none of its prompts fits.
struct FittingReferences {
  std::vector<GreedyReference> all;
  std::vector<std::string> left_out;
};
FittingReferences references_within(const std::vector<GreedyReference>& references, int positions);

// The number of positions that an engine needs to be judged by `references`.
int parity_positions(const CaseReferences& references, const CaseJob& job, const ModelShape& shape);

// Whether, as far as known before the weights are loaded, a truth will be computed in this run.
bool plans_live_truth(const CaseJob& job, const CaseServices& services, const ModelShape& shape);

// Number of different shapes that the engines compute while they are judged and, with `timed`, in
// the rest of the case too, as far as known before the weights are loaded.
CaseShapes planned_shapes(const CaseJob& job, const CaseServices& services, const ModelShape& shape,
                          bool timed = true);

// Number of steps after each prompt of a live reference.
inline constexpr int kLiveSteps = 32;

class Trials;

class Gate {
 public:
  Gate(const CaseJob& job, const FlowServices& services, const ModelWeights& weights,
       CaseReferences& references, int max_context, ProgressWatch& watch, EventSink& sink)
      : job_(job),
        services_(services),
        weights_(weights),
        references_(references),
        max_context_(max_context),
        watch_(watch),
        sink_(sink) {}

  // Makes the live reference if one is needed, then judges the judge by the references. Returns
  // true if the judge passed; else sends the verdict INVALID_REFERENCE.
  bool pass_judge(Contestant& contestant);
  // Call when the judge is closed: failures of other engines are then no longer localised.
  void drop_judge() { judge_ = nullptr; }
  // Judges a candidate, or a yardstick that is not the judge; sends its verdict and parity report.
  void judge_engine(Contestant& contestant);

 private:
  ParityOptions options_for(const Engine& engine, const std::string& name) const;
  void judge(Engine& engine, const std::string& name, const FittingReferences& references,
             ParityOptions options, const TimeBudget* budget, ParityReport& report);
  ParityReport judge_baseline(Engine& engine, const std::string& name);
  void set_first_ratchet(const Engine& engine, ParityOptions& options) const;
  void set_ratchet(const Engine& engine, const GreedyReference& reference,
                   ParityOptions& options) const;
  // Returns the run with an fp32 head, because pass_judge() needs it next.
  std::unique_ptr<Engine> add_live_reference(Engine& judge);
  void judge_within(TimeBudget& budget, Trials& trials, Contestant& contestant,
                    const FittingReferences& references, ParityReport& report);
  void send_parity(const std::string& engine, const ParityReport& report);
  std::unique_ptr<Engine> make(const std::string& name);

  const CaseJob& job_;
  const JudgeRuns runs_ = judge_runs(job_);
  const FlowServices& services_;
  const ModelWeights& weights_;
  CaseReferences& references_;
  const int max_context_;
  ProgressWatch& watch_;
  EventSink& sink_;
  Engine* judge_ = nullptr;               // set once the judge has passed
  std::optional<SweepTruth> live_sweep_;  // made for the first engine that needs it in its sweep
};

// What parity_positions() will be, before the weights are loaded. 0 if any reference cannot be read;
// find_case_references() reports it later.
int planned_parity_positions(const CaseJob& job, const CaseServices& services,
                             const ModelShape& shape);

}  // namespace mkbench
