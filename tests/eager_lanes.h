// Checks of the eager baseline for every device: test_eager runs them on the CPU, test_eager_gpu on
// a card.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "baselines/eager.h"
#include "references/greedy_reference.h"
#include "references/weights.h"

namespace mkbench::testing {

// Where eager runs, and whether its decode steps are those of `graph` or `compiled` (EagerOptions).
struct Lane {
  bool cuda = false, graph = false, compiled = false;
  bool static_steps() const { return graph || compiled; }
  const char* name() const { return compiled ? "compiled" : graph ? "graph" : "eager"; }
};
inline constexpr Lane kCpu{}, kCard{.cuda = true};
inline constexpr Lane kGraphOnCpu{.graph = true}, kGraphOnCard{.cuda = true, .graph = true};
inline constexpr Lane kCompiledOnCpu{.compiled = true},
    kCompiledOnCard{.cuda = true, .compiled = true};

using Ids = std::vector<int32_t>;

EagerOptions options_for(Lane lane);
// A walk over the byte alphabet: neighbouring ids differ.
Ids walk(int count, int vocab, int seed = 1);
// A step's logits in [steps, vocab].
std::span<const float> row(const std::vector<float>& logits, size_t step, int vocab);
double mean_of(std::span<const float> z);
// Squared 2-norm of the difference of a and b, each less its mean.
double centred_distance_squared(std::span<const float> a, std::span<const float> b);

// A committed checkpoint with its HF reference.
struct Case {
  ModelWeights weights;
  GreedyReference reference;
};
Case load_case(const std::string& model);

// Compares eager, teacher-forced, with the committed answers of HF: the truth by its top logits,
// the baseline with an fp32 head by the size of its error, the baseline by its tokens.
void check_truth(const Case& c, Lane lane);
void check_error_of_bf16(const Case& c, Lane lane);
void check_tokens(const Case& c, Lane lane);

// Each planted fault changes tokens of the strict prompts; without a fault none changes.
void check_planted_faults(const Case& c, Lane lane);

// Holds the lane's engine to the contract of references/engine.h, a section for each point: prefill
// equals single steps, save and restore, repeatability, refusals, ties, NaN, hooks, times; then poison,
// or for lanes with static steps, which have none, check_buckets().
void check_contract(const ModelWeights& weights, Lane lane);

// For lanes with static steps only. On both sides of a bucket's end the logits are as near to the truth as
// those of eager, and KV rows that an earlier sequence has left behind this one change nothing.
void check_buckets(const ModelWeights& weights, Lane lane);

}  // namespace mkbench::testing
