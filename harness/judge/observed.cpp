#include "harness/judge/observed.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "harness/measure/two_level.h"

namespace mkbench {
namespace {

// An engine is quicker where nobody looks if the whole interval lies above 1 by kLeastGain and by
// kHandoverDoubt of what handing over takes. The cost of handing over is measured on decodes of a
// few tokens, and may be larger in a long one, whose logits fit into no cache. So a sound engine is
// named only if chance, at most 1 of 200, adds to an error larger than both.
constexpr double kConfidence = 0.99, kLeastGain = 0.05, kHandoverDoubt = 0.5;

// Milliseconds a token, by medians: the first decodes of a process may compile or allocate.
double handover_ms(const HandoverTimes& h) {
  if (h.tokens < 1) return 0;
  const double more =
      summarize(h.shown_ms, kConfidence).median - summarize(h.bare_ms, kConfidence).median;
  return std::max(0.0, more / h.tokens);
}

// Means over all pairs of an observed decode and its block's sample, ms a token.
struct Means {
  double observed = 0, sample = 0, handover = 0;
  int pairs = 0;
};

std::vector<PairedBlocks> paired(const EngineReport& e, Means& means) {
  std::map<int, double> handovers;
  for (const HandoverTimes& h : e.observed.handovers) handovers[h.process] = handover_ms(h);
  std::map<int, double> samples;
  for (const Sample& s : e.samples) {
    if (s.valid) samples[s.block] = s.ms_per_token();
  }
  std::map<int, PairedBlocks> pairs;
  for (const ObservedDecode& o : e.observed.decodes) {
    const auto sample = samples.find(o.block);
    const auto handover = handovers.find(o.process);
    if (sample == samples.end() || handover == handovers.end() || o.tokens < 1) continue;
    const double ms = o.host_ms / o.tokens, left = ms - handover->second;
    PairedBlocks& process = pairs[o.process];
    // Where handing over explains more than all of the time, nothing is left to compare.
    process.baseline_ms.push_back(left > 0 ? left : sample->second);
    process.candidate_ms.push_back(sample->second);
    means.observed += ms, means.sample += sample->second, means.handover += handover->second;
    ++means.pairs;
  }
  std::vector<PairedBlocks> all;
  for (auto& [process, blocks] : pairs) all.push_back(std::move(blocks));
  if (means.pairs == 0) return all;
  for (double* sum : {&means.observed, &means.sample, &means.handover}) *sum /= means.pairs;
  return all;
}

}  // namespace

void fill_observed(EngineReport& e) {
  ObservedReport& o = e.observed;
  o.quicker_ci.reset();
  o.caution.clear();
  Means means;
  const std::vector<PairedBlocks> pairs =
      e.ms_per_tok ? paired(e, means) : std::vector<PairedBlocks>{};
  if (means.pairs == 0) {
    const std::string why = !e.ms_per_tok      ? e.times_withheld
                            : o.reason.empty() ? "no block was observed"
                                               : "not observed: " + o.reason;
    o.ms_per_tok = o.handover_ms = o.quicker = {std::nullopt, why};
    return;
  }
  const PairedSpeedup quicker = paired_speedup(pairs, kConfidence, std::nullopt);
  o.ms_per_tok = {means.observed, {}};
  o.handover_ms = {means.handover, {}};
  o.quicker = {quicker.speedup, {}};
  o.quicker_ci = quicker.ci;
  const double most = 1 + kLeastGain + kHandoverDoubt * means.handover / means.sample;
  if (!quicker.ci || quicker.ci->low <= most) return;
  o.caution = fmt::format(
      "quicker where nobody looks: {:.4f} ms a token, {:.4f} when asked for logits as well, of "
      "which "
      "handing them over explains {:.4f}: {:.2f}x [{:.2f}, {:.2f}]",
      means.sample, means.observed, means.handover, quicker.speedup, quicker.ci->low,
      quicker.ci->high);
}

void withhold_unobserved(const EngineReport& baseline, const EngineReport& candidate,
                         ComparisonReport& c) {
  for (const EngineReport* e : {&baseline, &candidate}) {
    if (e->observed.caution.empty() || c.verdict != (e == &candidate ? "FASTER" : "SLOWER"))
      continue;
    c.verdict = "INCONCLUSIVE";
    c.verdict_reason = fmt::format("{} is {}", e->name, e->observed.caution);
  }
}

}  // namespace mkbench
