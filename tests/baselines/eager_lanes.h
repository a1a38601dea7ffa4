// Checks of the eager baseline for every device: test_eager and test_compiled run them on the CPU,
// test_eager_gpu on a card.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "baselines/eager.h"

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

inline EagerOptions options_for(Lane lane) {
  EagerOptions options;
  options.cuda = lane.cuda;
  options.graph = lane.graph;
  options.compiled = lane.compiled;
  options.max_context = 1024;
  options.threads = 1;  // as in the capture of the references, and quicker for small matrices
  return options;
}

// A walk over the byte alphabet: neighbouring ids differ.
inline Ids walk(int count, int vocab, int seed = 1) {
  Ids ids;
  for (int i = 0; i < count; ++i) ids.push_back((seed * 31 + i * i * 7 + i * 3) % vocab);
  return ids;
}

// A step's logits in [steps, vocab].
inline std::span<const float> row(const std::vector<float>& logits, size_t step, int vocab) {
  return {logits.data() + step * static_cast<size_t>(vocab), static_cast<size_t>(vocab)};
}

inline double mean_of(std::span<const float> z) {
  double sum = 0;
  for (const float x : z) sum += x;
  return sum / static_cast<double>(z.size());
}

// Squared 2-norm of the difference of a and b, each less its mean.
inline double centred_distance_squared(std::span<const float> a, std::span<const float> b) {
  const double shift = mean_of(a) - mean_of(b);
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double d = double{a[i]} - double{b[i]} - shift;
    sum += d * d;
  }
  return sum;
}

// Compares eager, teacher-forced, with the committed answers of HF on both tiny checkpoints: the truth
// by its top logits, the baseline with an fp32 head by the size of its error, the baseline by its
// tokens, which each planted fault changes.
void check_eager(Lane lane);
// The baseline's tokens alone, for `graph` and `compiled`.
void check_all_tokens(Lane lane);

// Holds the lane's engine, on tiny, to the contract of references/engine.h, a section a point: prefill
// equals single steps, save and restore, repeatability, refusals, ties, NaN, hooks, times; then poison,
// or for lanes with static steps, which have none, the ends of buckets.
void check_contract(Lane lane);

}  // namespace mkbench::testing
