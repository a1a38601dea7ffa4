// What a timed run must emit, and how that is known.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "harness/host/services.h"
#include "harness/wire/job.h"
#include "references/engine.h"
#include "references/greedy_reference.h"

namespace mkbench {

// Prompt of the timed runs, and the ids that must follow it.
struct TimedTruth {
  std::string check;  // "closed form", "committed continuation", "live"; as the report names it
  std::vector<int32_t> prompt;
  std::vector<int32_t> expected;  // of every engine, unless `by_engine` says otherwise
  // Live only: an engine that left T's path at a near tie is held to its own path, every id of
  // which T has confirmed.
  std::map<std::string, std::vector<int32_t>> by_engine;

  const std::vector<int32_t>& expected_of(const std::string& engine) const;
};

// Prompt and expected ids of a case where they are known without running anything: the closed form
// on synthetic weights (any depth that the lag set covers), a committed continuation of a one-id
// prompt at depth 0. Nothing where the case has to be checked live; `prompt` of the result is
// filled in by timed_prompt() then.
std::optional<TimedTruth> known_truth(const CaseJob& job, const ModelWeights& weights,
                                      const std::vector<GreedyReference>& references, int tokens);

// The prompt of a live-checked case: --ids, else ids drawn from the seed (printable bytes where the
// vocabulary is byte-level).
std::vector<int32_t> timed_prompt(const CaseJob& job, const ModelShape& shape);

// Prompts on which a model without a committed truth is judged: those of published continuations
// where `references` has some (text is kinder to bf16 than random ids are), else drawn from the
// seed like timed prompts.
std::vector<std::vector<int32_t>> live_parity_prompts(
    const CaseJob& job, const ModelShape& shape, const std::vector<GreedyReference>& references);

// Checks a free-running path against T, teacher-forced on that very path: each id must be T's, or
// lie within D + `logit_step(max |z|)` of T's top (a near tie). Returns one line about the first id
// that does not; else empty. `truth` must hold the prompt, with its last id pending. logits_bf16:
// the engine rounds its logits.
std::string confirm_path(Engine& truth, const std::vector<int32_t>& path, int vocab,
                         double pairwise_d, bool logits_bf16);

}  // namespace mkbench
