// Judges every cache length: step by step from a short prompt, and after prefills that end around
// powers of two and at the end of the cache.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "harness/judge/findings.h"

namespace mkbench {

// The right answers at each cache length (KV rows that a step sees, its own included).
struct SweepTruth {
  std::string source;    // "closed form of 'short'", "fp32 truth of this run"
  ReferencePrompt path;  // cache lengths ids.size() to ids.size() + steps - 1, step by step
  // One step after a prefill of all ids but the last, or up to three steps where prefills are long.
  std::vector<ReferencePrompt> jumps;
  // Largest pairwise error D of the baseline over these steps; 0: only the truth's token is right.
  double pairwise_d = 0;
  bool has_logits = false;  // steps hold the truth's logits and sketches
};

// Cache lengths 15-17, 31-33, ... around powers of two, and the last two up to `longest`.
std::vector<int> edge_lengths(int longest);

// edge_lengths() as prefills and the steps after each: {first length, steps}. Every length up to
// kEachOwnPrefill has a prefill of its own; longer neighbours share one.
inline constexpr int kEachOwnPrefill = 513;
std::vector<std::pair<int, int>> edge_prefills(int longest);

// Truth from the closed form of the analytic checkpoint: the continuation of a seeded prompt, step
// by step over `steps` lengths from the first one where the closed form holds, and edge_lengths()
// up to `longest`.
SweepTruth closed_form_sweep(std::string_view lagset, int steps, int longest);

// Truth computed in this run: the truth's own path after `start`, step by step, and edge_lengths()
// up to `longest`; beyond the path its ids are repeated. `stop` is called before every prefill and
// may throw.
SweepTruth live_sweep(Engine& truth, Engine& head_fp32, int vocab,
                      const std::vector<int32_t>& start, int steps, int longest,
                      const std::function<void()>& stop);

// Every token must be the truth's (or, at a near tie, within D of the truth's top). The error of
// every step must be at most limits.step times the baseline's error there or the baseline's median,
// whichever is larger. The largest such ratio is the check's value.
void judge_sweep(Engine& engine, const SweepTruth& truth, const ParityOptions& options,
                 const std::function<void()>& stop, Findings& findings);

}  // namespace mkbench
