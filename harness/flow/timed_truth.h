// The ids that a timed run must emit, and how they are known.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "harness/flow/job.h"
#include "harness/flow/services.h"
#include "references/engine.h"
#include "references/greedy_reference.h"

namespace mkbench {

// The prompt of the timed runs, and the ids that must follow it.
struct TimedTruth {
  std::string check;  // "closed form", "committed continuation", "live"; as the report names it
  std::vector<int32_t> prompt;
  std::vector<int32_t> expected;  // from every engine without an entry in `by_engine`
  // Live only: an engine that left the truth's path at a near tie is held to its own path, every id
  // of which the truth has confirmed.
  std::map<std::string, std::vector<int32_t>> by_engine;

  const std::vector<int32_t>& expected_of(const std::string& engine) const;
};

// Prompt and expected ids of a case where they are known without running anything: the closed form
// on synthetic weights (any depth that the lag set covers), a committed continuation of a one-id
// prompt at depth 0. Empty where the case has to be checked live; timed_prompt() gives the prompt
// then.
std::optional<TimedTruth> known_truth(const CaseJob& job, const ModelWeights& weights,
                                      const std::vector<GreedyReference>& references, int tokens);

// The prompt of a case that is checked live: --ids, else ids drawn from the seed (printable bytes
// where the vocabulary is byte-level).
std::vector<int32_t> timed_prompt(const CaseJob& job, const ModelShape& shape);

// Prompts on which a model without a committed truth is judged: the prompts of published
// continuations where `references` has some (text loses less in bf16 than random ids do), else
// prompts drawn from the seed like timed ones.
std::vector<std::vector<int32_t>> live_parity_prompts(
    const CaseJob& job, const ModelShape& shape, const std::vector<GreedyReference>& references);

// Checks a free-running path against the truth, teacher-forced on this path: each id must be the
// truth's choice, or its logit must lie within D + `logit_step(max |z|)` of the truth's largest (a
// near tie). Returns one line about the first id that fails, or an empty text. `truth` must hold
// the prompt, with its last id pending. logits_bf16: the engine rounds its logits.
std::string confirm_path(Engine& truth, const std::vector<int32_t>& path, int vocab,
                         double pairwise_d, bool logits_bf16);

}  // namespace mkbench
