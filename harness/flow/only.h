// `mkbench parity --only`: repeats one step instead of running all checks.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "harness/flow/contestant.h"
#include "harness/flow/job.h"
#include "harness/flow/services.h"
#include "harness/flow/watch.h"
#include "harness/judge/replay.h"

namespace mkbench {

// A step of a reference; null pointers if it was not found.
struct FoundStep {
  const GreedyReference* reference = nullptr;
  const ReferencePrompt* prompt = nullptr;
  int step = 0;
};

// The step of prompt `name` at `position`.
FoundStep find_step(const std::vector<GreedyReference>& references, const std::string& name,
                    int position);

// pairwise_d: D of the reference. `references` supply texts of ids and must outlive the result.
ReplayOptions replay_options(double pairwise_d, const std::string& engine, const ModelShape& shape,
                             const std::vector<GreedyReference>& references);

// Fills in engine, model and their hashes and, if the prompt is `committed`, the command that names
// the prompt. Without a command, the step can only be repeated from its file.
void name_step(const CaseJob& job, const ModelWeights& weights, const std::string& engine,
               bool committed, FailedStep& step);

// KV rows that the job's step needs. Throws Error(kBadInput), which lists the known prompts, if the
// step is unknown.
int only_positions(const CaseJob& job, const std::vector<GreedyReference>& references);

// Keeps only the prompt job.only_prompt of the references. Throws Error(kBadInput), which lists the
// known prompts, if none has that name.
void keep_prompt(const CaseJob& job, std::vector<GreedyReference>& references);

// Repeats the step on every candidate, beside the truth and the judge; sends each candidate's
// findings and verdict. `make` makes the engine of a contestant.
void run_only(const CaseJob& job, const CaseServices& services, const ModelWeights& weights,
              const std::vector<GreedyReference>& references, int max_context,
              std::vector<Contestant>& contestants, const std::function<void(Contestant&)>& make,
              ProgressWatch& watch, EventSink& sink);

}  // namespace mkbench
