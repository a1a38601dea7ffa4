// Every cache length: step by step from a short prompt, and on prefills that end around powers of
// two and at the end of the cache.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "harness/judge/findings.h"

namespace mkbench {

// What is right at each cache length (KV rows that a step sees, its own included).
struct SweepTruth {
  std::string source;    // "closed form of 'short'", "fp32 truth of this run"
  ReferencePrompt path;  // cache lengths ids.size() to ids.size() + steps - 1, step by step
  // On a prefill of all ids but the last: one step, or up to three where prefills are long.
  std::vector<ReferencePrompt> jumps;
  // D over these steps. 0: nothing but the token itself is right.
  double pairwise_d = 0;
  bool has_logits = false;  // steps hold T's logits and sketches
};

// 15-17, 31-33, ... around powers of two, and the last two; none over `longest`.
std::vector<int> edge_lengths(int longest);

// The same, as prefills and the steps behind each: {first length, steps}. Up to kEachOwnPrefill
// every length has a prefill of its own; beyond, neighbours share one.
inline constexpr int kEachOwnPrefill = 513;
std::vector<std::pair<int, int>> edge_prefills(int longest);

// Closed form of the analytic checkpoint: its own continuation of a seeded prompt, step by step
// over `steps` lengths from the first one where the closed form holds, and edges up to `longest`.
SweepTruth closed_form_sweep(std::string_view lagset, int steps, int longest);

// T's own path behind `start`, step by step, and edges up to `longest`; beyond the path its ids
// are repeated. `stop` is asked before every prefill and may throw.
SweepTruth live_sweep(Engine& truth, Engine& head_fp32, int vocab,
                      const std::vector<int32_t>& start, int steps, int longest,
                      const std::function<void()>& stop);

// Every token must be T's (or within D of its top at a near tie), and the error of every step at
// most limits.step times the larger of B's there and B's median. The largest such ratio is the
// check's value.
void judge_sweep(Engine& engine, const SweepTruth& truth, const ParityOptions& options,
                 const std::function<void()>& stop, Findings& findings);

}  // namespace mkbench
