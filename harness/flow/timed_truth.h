// The prompt of the timed runs, and how the ids that must follow it are known.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "harness/flow/job.h"
#include "references/engine.h"
#include "references/greedy_reference.h"

namespace mkbench {

// The prompt of the timed runs. Each run replaces its last id by a late one.
struct TimedTruth {
  std::vector<int32_t> prompt;
  // Lag set of the closed form that gives the ids; empty: the truth scores them after the timing.
  std::string lagset;
  int vocab = 0;  // on which the closed form depends, as on the salt
  uint64_t salt = 0;
  std::vector<int32_t> late_ids;  // the ids that may end the prompt

  // The check as the report names it.
  const char* check() const {
    return lagset.empty() ? "late ids, scored by the truth" : "closed form";
  }
  std::vector<int32_t> ending_with(int32_t late_id) const;
  // The n ids that must follow; empty without a closed form.
  std::optional<std::vector<int32_t>> expected(int32_t late_id, int n) const;
};

// The closed form decides on analytic weights at any depth that the lag set covers, if every id of
// the prompt has a state (StateCode). Then each process has its own prompt, unless --ids gives it.
// Without a closed form all processes share one prompt, because the truth has to prefill it.
TimedTruth find_timed_truth(const CaseJob& job, const ModelWeights& weights, int process = 0);
// Whether find_timed_truth() will find a closed form; needs no weights.
bool has_closed_form(const CaseJob& job, const ModelShape& shape);

// The truth of each process, found when it is first asked for. `job` and `weights` outlive it.
using TruthOf = std::function<const TimedTruth&(int process)>;
TruthOf truth_by_process(const CaseJob& job, const ModelWeights& weights);

// The timed prompt: --ids, else ids drawn from the prompt's seed (printable bytes where the
// vocabulary is byte-level).
std::vector<int32_t> timed_prompt(const CaseJob& job, const ModelShape& shape);

// Prompts on which a model without a committed truth is judged: the prompts of `references`, which
// are published texts (text loses less in bf16 than random ids do); if there are none, prompts
// drawn from the seed like timed ones. On analytic weights the longer ones have a closed form.
std::vector<std::vector<int32_t>> live_parity_prompts(
    const CaseJob& job, const ModelShape& shape, const std::vector<GreedyReference>& references);

// Empties and poisons the engine, and prefills the prompt.
void start_afresh(Engine& engine, const std::vector<int32_t>& prompt);
// Sets an engine to the end of its prompt once more: by its snapshot, by rewind(), else by a new
// prefill. After rewind() no id is pending.
void start_again(Engine& engine, const Snapshot& start, const std::vector<int32_t>& prompt);

// Gets the index of a step in its path, the id that the engine emitted (-1: none), and its logits;
// returns false to stop.
using TakeStep = std::function<bool(size_t step, int32_t emitted, std::span<const float> row)>;
// Runs the steps [first, path.size()) of a path with logits, teacher-forced on the path if the
// engine takes forced ids. The engine must be at step `first`; if that is 0, the prompt's last id
// must be pending.
void walk_path(Engine& engine, const std::vector<int32_t>& path, size_t first, int vocab,
               const TakeStep& take);

// The first wrong id of a path: one line about it, its index, and what it should be.
struct WrongId {
  std::string text;  // empty: no id is wrong
  size_t step = 0;
  int32_t expected = -1;
};

// Checks a free-running path against the truth, teacher-forced on this path: each id must be the
// truth's choice, or its logit must lie within tau (tau_of()) of the truth's largest (a near
// tie). `own_d`, if given, has a D for each step, and the larger D counts. Returns the first id
// that fails. `truth` must hold the prompt, with its last id pending. logits_bf16: the engine
// rounds its logits.
WrongId confirm_path(Engine& truth, const std::vector<int32_t>& path, int vocab, double pairwise_d,
                     bool logits_bf16, const std::vector<double>& own_d = {});

}  // namespace mkbench
