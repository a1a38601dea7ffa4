#include "harness/judge/card_figures.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "harness/report/readings.h"

namespace mkbench {
namespace {

constexpr double kLeastEnergyS = 1;  // seconds that the energy counter must cover

std::string reason_not_read(const EngineReport& e) {
  return e.card_reason.empty() ? "the driver (NVML) told nothing of the card" : e.card_reason;
}

bool is_read(const Sample& s) { return s.card.has_value(); }

}  // namespace

void count_dropped(EngineReport& e) {
  std::vector<const Telemetry*> cards;
  for (const Sample& s : e.samples) {
    if (s.card) cards.push_back(&*s.card);
  }
  CardReport counts;
  counts.sm_clock_mhz = median_sm_clock(cards);
  std::map<std::string, int> reasons;
  for (const Sample& s : e.dropped_samples) {
    ++(s.dropped_for == kOtherEngine ? counts.with_others : counts.dropped);
    if (s.dropped_for != kOtherEngine) ++reasons[s.dropped_for];
  }
  for (const Telemetry* card : cards) {
    const std::string doubt = condition_doubt(*card, counts.sm_clock_mhz);
    if (doubt.empty()) continue;
    ++counts.unfit;
    ++reasons[doubt];
  }
  for (const auto& [reason, blocks] : reasons) counts.reasons.push_back({reason, blocks});
  const size_t all = e.samples.size() + e.dropped_samples.size();
  if (all > 0) counts.share = (counts.dropped + counts.unfit) / static_cast<double>(all);
  counts.energy_j = counts.watching_costs = {std::nullopt, e.times_withheld};
  e.card = counts;
}

void fill_energy(EngineReport& e) {
  double joules = 0, ms = 0, tokens = 0, watched_ms = 0, host_ms = 0;
  bool counts_energy = false;
  for (const Sample& s : e.samples) {
    tokens += s.tokens;
    host_ms += s.times.host_ms;
    if (!s.card) continue;
    watched_ms += s.times.host_ms;
    joules += s.card->energy_j;
    ms += s.card->energy_ms;
    counts_energy = counts_energy || s.card->counts_energy.value_or(false);
  }
  e.card.energy_s = ms / 1e3;
  if (std::none_of(e.samples.begin(), e.samples.end(), is_read)) {
    e.card.energy_j = {std::nullopt, reason_not_read(e)};
  } else if (!counts_energy) {
    e.card.energy_j = {std::nullopt, "the card has no energy counter"};
  } else if (e.card.energy_s < kLeastEnergyS) {
    e.card.energy_j = {
        std::nullopt,
        fmt::format("the card's energy counter covers {:.2f} s of {:.2f} s of samples, wanted "
                    "{:g} s: it changes in steps of its own; take longer samples (-n) or more",
                    e.card.energy_s, watched_ms / 1e3, kLeastEnergyS)};
  } else {
    e.card.energy_j = {joules / ms * host_ms / tokens, {}};
  }
}

void fill_watching_costs(EngineReport& e, double confidence) {
  std::map<int, const Sample*> blocks;
  for (const Sample& s : e.samples) blocks[s.block] = &s;
  std::map<int, PairedBlocks> by_process;
  for (const auto& [block, sample] : blocks) {
    const auto next = blocks.find(block + 1);
    if (block % 2 != 0 || next == blocks.end() || next->second->process != sample->process ||
        is_read(*sample) == is_read(*next->second))
      continue;
    const bool first = is_read(*sample);
    PairedBlocks& pairs = by_process[sample->process];
    pairs.baseline_ms.push_back((first ? sample : next->second)->ms_per_token());
    pairs.candidate_ms.push_back((first ? next->second : sample)->ms_per_token());
  }
  std::vector<PairedBlocks> processes;
  for (auto& [process, pairs] : by_process) processes.push_back(std::move(pairs));
  if (processes.empty()) {
    e.card.watching_costs = {std::nullopt, "not measured: --telemetry alternate does, on a GPU"};
    return;
  }
  const PairedSpeedup ratio = paired_speedup(processes, confidence, 1);
  e.card.watching_costs = {ratio.speedup - 1, {}};
  if (ratio.ci) e.card.watching_costs_ci = {ratio.ci->low - 1, ratio.ci->high - 1};
}

void label_dropped_blocks(const EngineReport& baseline, const EngineReport& candidate,
                          ComparisonReport& c) {
  for (const EngineReport* e : {&baseline, &candidate}) {
    if (e->card.share <= kMostDropped) continue;
    c.verdict = "INCONCLUSIVE";
    const std::string dropped =
        fmt::format("{:.0f} % of {}'s blocks dropped", 100 * e->card.share, e->name);
    for (std::string* text : {&c.label, &c.verdict_reason})
      *text += (text->empty() ? "" : "; ") + dropped;
  }
}

}  // namespace mkbench
