#include "harness/flow/soak_steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "references/synthetic.h"

namespace mkbench {
namespace {

constexpr int kFineEdge = 16, kFineUntil = 512, kCoarseEdge = 64;
constexpr int kMostTokens = 16, kMostRepeats = 7, kMostFurther = 2;
// For steps that fill the cache: prefilling a long cache again takes most of a soak's time.
constexpr int kMostRepeatedFills = 2;
// A step's number modulo kKinds is its kind: 0 fills the cache, 1 to 3 pass one of soak_edges(), 5
// and 6 take a prompt of a reference if there is one; other prompts have random lengths.
constexpr int64_t kKinds = 8, kEdgeKinds = 3, kKnownKinds[] = {5, 6};
// Steps of the other kinds repeat their launch many times if the prompt is short relative to the
// cache: repeating a launch costs little compared with the prefill of a long prompt.
constexpr int kOften = 8, kShortShare = 8;
// Every kLongEvery-th step is one long launch, repeated once: 16-bit counters wrap within it.
constexpr int64_t kLongEvery = 128;
constexpr int kLongTokens = 2100;
// One step in four delays blocks if its prefill is short: delayed rows take milliseconds on a CPU.
constexpr int kMostDelayedRows = 64, kDelayUs = 50;
// A counter begins at most this far below 2^16, 2^31 or 2^32; host-twin on tiny counts as far in 2
// tokens.
constexpr uint64_t kBelowEdge = 256;

// Numbers that follow from the seed and the step alone.
class Draws {
 public:
  Draws(uint64_t seed, int64_t number)
      : state_(splitmix64(seed ^ splitmix64(static_cast<uint64_t>(number)))) {}
  uint64_t word() { return splitmix64(state_++); }
  int below(int bound) { return static_cast<int>(word() % static_cast<uint64_t>(bound)); }

 private:
  uint64_t state_;
};

Stress draw_stress(Draws& draws, int rows) {
  constexpr uint64_t kEdges[] = {0, uint64_t{1} << 16, uint64_t{1} << 31, uint64_t{1} << 32};
  Stress stress;
  const uint64_t edge = kEdges[draws.below(4)], below = draws.word() % kBelowEdge;
  if (edge > 0) stress.count_from = edge - 1 - below;
  const bool delays = draws.below(4) == 0;
  const uint64_t seed = draws.word() >> 32;
  // Without counter and delays it is Stress{}, under which engines run their shipped kernels.
  if (delays && rows <= kMostDelayedRows) stress.delay_us = kDelayUs, stress.delay_seed = seed;
  return stress;
}

// Log-uniform, so that few prefills are long.
int draw_rows(Draws& draws, int least, int most) {
  const double share = static_cast<double>(draws.below(1 << 20)) / (1 << 20);
  const double low = std::log(least + 1.0), high = std::log(most + 1.0);
  return std::clamp(static_cast<int>(std::exp(low + share * (high - low))) - 1, least, most);
}

}  // namespace

std::vector<int> soak_edges(const SoakBounds& bounds) {
  std::set<int> edges;
  for (int at = kFineEdge; at - 1 <= bounds.context;
       at += at < kFineUntil ? kFineEdge : kCoarseEdge) {
    for (const int length : {at - 1, at, at + 1}) {
      if (length > bounds.least_rows && length <= bounds.context) edges.insert(length);
    }
  }
  return {edges.begin(), edges.end()};
}

SoakStep draw_step(const SoakBounds& bounds, const std::vector<int>& edges, int64_t number) {
  Draws draws(bounds.seed, number);
  SoakStep step{.number = number};
  step.tokens = 1 + draws.below(kMostTokens);
  step.repeats = 1 + draws.below(kMostRepeats);
  step.further = draws.below(kMostFurther + 1);
  step.logits = draws.below(4) == 0;
  step.prompt_seed = draws.word();
  step.ways = draws.word();
  const bool is_long = number % kLongEvery == kLongEvery - 1;
  if (is_long) {
    step.tokens = std::min(kLongTokens, (bounds.context - bounds.least_rows) * 2 / 3);
    step.repeats = 1;
    step.further = 0;
    step.logits = false;
  }
  const int most = bounds.context - step.tokens * (1 + step.further);
  const int64_t kind = number % kKinds;
  if (kind == 0) {
    step.rows = most;
    step.fills = true;
    step.repeats = std::min(step.repeats, kMostRepeatedFills);
  } else if (kind <= kEdgeKinds && !edges.empty()) {
    const int64_t nth = number / kKinds * kEdgeKinds + kind - 1;
    step.edge = static_cast<int>(nth % static_cast<int64_t>(edges.size()));
    // One token of the first launch sees exactly the edge's number of rows, its own included.
    const int before = edges[static_cast<size_t>(step.edge)] - 1 - draws.below(step.tokens);
    step.rows = std::clamp(before, bounds.least_rows, most);
  } else {
    step.rows = draw_rows(draws, bounds.least_rows, most);
    step.known = kind == kKnownKinds[0] || kind == kKnownKinds[1];
    const bool is_short = step.rows <= bounds.context / kShortShare;
    if (!step.known && is_short && !is_long) step.repeats *= kOften;
  }
  step.stress = draw_stress(draws, step.rows);
  return step;
}

std::string step_text(const SoakStep& step) {
  std::string text =
      fmt::format("a prefill of {} rows, launches of {} tokens", step.rows, step.tokens);
  if (step.stress.count_from > 0) text += fmt::format(", counters from {}", step.stress.count_from);
  if (step.stress.delay_us > 0)
    text += fmt::format(", delays of up to {} us", step.stress.delay_us);
  return text;
}

}  // namespace mkbench
