// The checks that only `mkbench parity` makes (repeats, isolation, head, the sweep of cache lengths),
// and the search for the place where a failure begins, which `mkbench run` makes too.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "harness/flow/job.h"
#include "harness/flow/only.h"
#include "harness/flow/services.h"
#include "harness/flow/watch.h"
#include "harness/judge/localise.h"
#include "harness/judge/sweep.h"

namespace mkbench {

class Trials {
 public:
  Trials(const CaseJob& job, const CaseServices& services, const ModelWeights& weights,
         int max_context, ProgressWatch& watch, TimeBudget& budget,
         std::optional<SweepTruth>& live_truth)
      : job_(job),
        services_(services),
        weights_(weights),
        max_context_(max_context),
        watch_(watch),
        budget_(budget),
        live_truth_(live_truth) {}

  // Adds the checks repeats, isolation, head and sweep to the report of a judged engine, even if an
  // error of the engine ends one of them.
  void run(Engine& engine, const std::string& name, const std::vector<GreedyReference>& references,
           const ParityOptions& options, ParityReport& report);
  // Fills in report.localised and report.failed_step if a single step shows the failure. An error
  // of the search goes into report.localised.
  void localise_failure(Engine& engine, const std::string& name, Engine& baseline,
                        const std::vector<GreedyReference>& references, ParityReport& report);

 private:
  void check_stop() const;
  std::unique_ptr<Engine> make(const std::string& name, int context, const ModelWeights& weights);
  int longest_cache() const;
  int longest_in_time(int longest) const;
  void sweep(const std::string& name, const ParityOptions& options, Findings& findings,
             ParityReport& report);
  SweepCoverage sweep_lagset(const std::string& name, int cache, int longest, int needed,
                             const ParityOptions& options, Findings& findings);
  std::string sweep_far(const std::string& name, const std::string& lagset, int longest,
                        const ParityOptions& options, Findings& findings);
  SweepCoverage sweep_on(const std::string& name, const SweepTruth& truth,
                         const ModelWeights& weights, int longest, int needed,
                         const ParityOptions& options, Findings& findings);
  const SweepTruth& live_truth(int longest);
  std::string find_kept(const std::string& name, Engine& truth, const ReferencePrompt& prompt);
  void localise_prompt(const LocaliseEngines& engines, const std::string& name,
                       const FoundStep& found, const std::vector<GreedyReference>& references,
                       ParityReport& report);
  void localise_swept(const std::string& name, const std::vector<GreedyReference>& references,
                      ParityReport& report);

  const CaseJob& job_;
  const JudgeRuns runs_ = judge_runs(job_);
  const CaseServices& services_;
  const ModelWeights& weights_;
  const int max_context_;
  ProgressWatch& watch_;
  TimeBudget& budget_;
  EnginePace pace_;
  int limit_ = 0;                          // the most positions that the judged engine takes
  std::optional<SweepTruth>& live_truth_;  // shared by the engines of the case
  struct SweptStep {
    FailedStep step;
    ModelWeights weights;
  };
  std::optional<SweptStep> swept_;  // the first step that a sweep found wrong
  bool prompts_failed_ = true;      // true: a step of the prompts is localised, not of the sweep
  bool ended_ = false;              // all checks came to their end without an error
};

// The prompts that are repeated in this process and in fresh ones, from the first reference with
// logits or, if there is none yet, from the prompts that the live reference will have.
std::vector<ReferencePrompt> repeated_prompts(const CaseJob& job, const ModelShape& shape,
                                              const std::vector<GreedyReference>& references);

}  // namespace mkbench
