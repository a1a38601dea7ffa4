// The checks that only `mkbench parity` makes: repeats, isolation, the sweep of cache lengths. In
// `run` too: where a check has failed, the place at which the failure begins.
#pragma once

#include <string>
#include <vector>

#include "harness/flow/job.h"
#include "harness/flow/services.h"
#include "harness/flow/watch.h"
#include "harness/judge/findings.h"

namespace mkbench {

class Trials {
 public:
  Trials(const CaseJob& job, const FlowServices& services, const ModelWeights& weights,
         int max_context, ProgressWatch& watch)
      : job_(job),
        services_(services),
        weights_(weights),
        max_context_(max_context),
        watch_(watch) {}

  // Adds the checks repeats, sweep and isolation to the report of a judged engine. `prompts` are
  // repeated.
  void run(Engine& engine, const std::string& name, const std::vector<ReferencePrompt>& prompts,
           ParityReport& report);
  // Fills in report.localised after FAIL_FIDELITY or FAIL_TOKEN; an error on the way is written
  // there too.
  void localise_failure(Engine& engine, const std::string& name, Engine& baseline,
                        const std::vector<GreedyReference>& references, ParityReport& report);

 private:
  ParityOptions options() const;
  void check_stop() const;
  std::unique_ptr<Engine> make(const std::string& name, int context, const ModelWeights& weights);
  void sweep(const std::string& name, Findings& findings);
  void sweep_closed_form(const std::string& name, const ModelWeights& weights, Findings& findings);
  void sweep_live(const std::string& name, Findings& findings);
  int longest_sweep() const;
  int stepped_lengths() const;

  const CaseJob& job_;
  const FlowServices& services_;
  const ModelWeights& weights_;
  const int max_context_;
  ProgressWatch& watch_;
  std::vector<std::string> covered_;  // cache lengths that the sweep has tested, as text
};

// The prompts that are repeated in this process and in fresh ones: those of the first reference
// with logits, or those of the live reference where it is not made yet.
std::vector<ReferencePrompt> repeated_prompts(const CaseJob& job, const ModelShape& shape,
                                              const std::vector<GreedyReference>& references);

}  // namespace mkbench
