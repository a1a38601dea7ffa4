// Judges every cache length by a walk: one sequence, teacher-forced from a short prompt, passes all
// of them in turn. Lengths around powers of two and at the end of the cache are judged again by
// jumps, which prefill up to them.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "harness/judge/budget.h"
#include "harness/judge/findings.h"
#include "harness/report/failed_step.h"

namespace mkbench {

// The right answers at each cache length (KV rows that a step sees, its own included).
struct SweepTruth {
  std::string source;    // "the closed form of 'short'", "the fp32 truth of this run"
  ReferencePrompt path;  // cache lengths ids.size() to ids.size() + steps - 1, step by step
  // Each: a prefill of all ids but the last, then one step, or several if the prefill is long.
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

// Truth from the closed form of a lag set in a vocabulary of `vocab` ids: the continuation of a
// seeded prompt, step by step over `steps` lengths from the first one at which the closed form
// holds, and at edge_lengths() up to `longest`.
SweepTruth closed_form_sweep(std::string_view lagset, int vocab, int steps, int longest);

// Truth computed in this run: the truth's own path after `start`, step by step, and edge_lengths()
// up to `longest`; prefills longer than the path repeat its ids. `go_on` is asked before every
// kMaxLogitSteps steps and every prefill beyond the path; the sweep ends when it returns false.
SweepTruth live_sweep(Engine& truth, Engine& head_fp32, int vocab,
                      const std::vector<int32_t>& start, int steps, int longest,
                      const std::function<bool()>& go_on);

// Cache lengths that a pass of `parity` needs; all of them if the model has fewer.
inline constexpr int kNeededLengths = 2049;

// What bounds a sweep. By default nothing does.
struct SweepBounds {
  std::function<void()> stop = [] {};  // called before every call of the engine; may throw
  // With both set, the walk ends with the budget, and a jump that does not fit is left out. `pace`
  // is updated on the way.
  TimeBudget* budget = nullptr;
  EnginePace* pace = nullptr;
  // The walk has the whole budget up to this length, and an eighth of it beyond.
  int needed = 0;
  std::function<void(int done, int total)> walked = {};  // gets the walk's steps, done and in all
  // Called with the first step that is wrong, as it was judged.
  std::function<void(const FailedStep& step)> first_wrong = {};
};

struct SweepCoverage {
  int first = 1, last = 0;              // cache lengths walked; last < first: none
  std::vector<int> prefills, left_out;  // rows of the jumps that were judged, and of the others
};

// Whether a prefill of `rows` rows and the steps behind it are predicted to fit into the time left
// and into a quarter of the budget.
bool jump_fits(const TimeBudget& budget, const EnginePace& pace, int rows, int steps);

// Every token must be the truth's (or, at a near tie, within D of the truth's top). The error of
// every step must be at most limits.sweep times the larger of the baseline's error at that step and
// the median of the baseline's errors. The largest such ratio is the check's value. Lengths beyond
// the engine's context are not judged.
SweepCoverage judge_sweep(Engine& engine, const SweepTruth& truth, const ParityOptions& options,
                          const SweepBounds& bounds, Findings& findings);

// Times a short and a longer prefill of `ids` (repeated as needed) and the steps behind them.
EnginePace measure_pace(Engine& engine, const std::vector<int32_t>& ids, int vocab,
                        const TimeBudget& budget);

// "walked 2,049; prefills of 14, 15, 16, ..., 4,095 rows; left out for their time: prefills ...".
std::string coverage_text(const SweepCoverage& coverage);

}  // namespace mkbench
