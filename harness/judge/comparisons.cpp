#include "harness/judge/comparisons.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "harness/judge/card_figures.h"
#include "harness/report/readings.h"

namespace mkbench {
namespace {

// ms/token of valid samples by process and block, both ascending.
std::map<int, std::map<int, double>> by_block(const std::vector<Sample>& samples) {
  std::map<int, std::map<int, double>> result;
  for (const Sample& s : samples) {
    if (s.valid) result[s.process][s.block] = s.ms_per_token();
  }
  return result;
}

// A faster time proves nothing if the engine may have known its input before the clock began.
void label_early_ids(const EngineReport& baseline, const EngineReport& candidate,
                     ComparisonReport& c) {
  for (const EngineReport* e : {&baseline, &candidate}) {
    if (takes_late_ids(*e)) continue;
    c.label = "no late id";
    if (c.verdict != (e == &candidate ? "FASTER" : "SLOWER")) continue;
    c.verdict = "INCONCLUSIVE";
    c.verdict_reason = e->name + " knows its last input id before the clock begins";
  }
}

void label_lossy(const EngineReport& baseline, const EngineReport& candidate, ComparisonReport& c) {
  if (is_lossy(baseline) == is_lossy(candidate)) return;
  c.label = "lossy";
  c.verdict = "INCONCLUSIVE";
  c.verdict_reason = (is_lossy(candidate) ? candidate : baseline).name +
                     " is quantised (class lossy), and not ranked beside an engine that is not";
}

void judge_speedup(const PairedSpeedup& s, const SpeedMargin& margin, ComparisonReport& c) {
  if (s.processes < 2) {
    c.verdict_reason = "one process gives no verdict; --processes takes more";
  } else if (s.processes < margin.least_processes) {
    c.verdict_reason = margin.too_few;
  } else {
    c.verdict = speed_verdict(*s.ci, c.margin);
  }
}

bool on_cpu(const EngineReport& e) { return e.device.rfind("cpu", 0) == 0; }

ComparisonReport compare(const EngineReport& baseline, const EngineReport& candidate,
                         double confidence, uint64_t seed, bool random_order,
                         const SpeedMargin& margin) {
  ComparisonReport c;
  c.baseline = baseline.name;
  c.candidate = candidate.name;
  c.confidence = confidence;
  c.design = random_order ? fmt::format("paired blocks, random order, seed {}", seed)
                          : "paired blocks, abba";
  c.margin = margin.value();
  c.margin_source = margin.source;
  c.verdict = "INCONCLUSIVE";
  const EngineReport* without_times = !baseline.ms_per_tok    ? &baseline
                                      : !candidate.ms_per_tok ? &candidate
                                                              : nullptr;
  if (without_times != nullptr) {
    c.speedup.reason = without_times->timed
                           ? fmt::format("times of {} are withheld", without_times->name)
                           : fmt::format("{} was not timed", without_times->name);
    return c;
  }
  if (on_cpu(baseline) || on_cpu(candidate)) {
    const bool twin = baseline.name == kHostTwin || candidate.name == kHostTwin;
    c.caveat = twin ? "on a CPU: the host twin tests the schedule, its speed says nothing of a GPU"
                    : "on a CPU: it says nothing of a GPU";
  }
  const PairedSpeedup s =
      paired_speedup(paired_blocks(baseline.samples, candidate.samples), confidence, seed);
  c.blocks = s.blocks;
  c.processes = s.processes;
  if (s.blocks == 0) {
    c.speedup.reason = "no block holds both engines";
    return c;
  }
  c.speedup = {s.speedup, {}};
  c.ci = s.ci;
  c.bca_ci = s.bca_ci;
  judge_speedup(s, margin, c);
  label_early_ids(baseline, candidate, c);
  label_lossy(baseline, candidate, c);
  label_dropped_blocks(baseline, candidate, c);
  return c;
}

}  // namespace

ByProcess times_by_process(const std::vector<Sample>& samples) {
  ByProcess times;
  for (const auto& [process, blocks] : by_block(samples)) {
    times.emplace_back();
    for (const auto& [block, ms] : blocks) times.back().push_back(ms);
  }
  return times;
}

ByProcess times_over(const std::vector<Sample>& samples, const std::vector<Sample>& control) {
  const auto mean_ms = [](const std::map<int, double>& blocks) {
    std::vector<double> values;
    for (const auto& [block, ms] : blocks) values.push_back(ms);
    return mean_of(values);
  };
  ByProcess ratios;
  const auto of_control = by_block(control);
  for (const auto& [process, blocks] : by_block(samples)) {
    const auto other = of_control.find(process);
    if (other != of_control.end()) ratios.push_back({mean_ms(blocks) / mean_ms(other->second)});
  }
  return ratios;
}

std::vector<PairedBlocks> paired_blocks(const std::vector<Sample>& baseline,
                                        const std::vector<Sample>& candidate) {
  std::vector<PairedBlocks> pairs;
  auto of_candidate = by_block(candidate);
  for (const auto& [process, blocks] : by_block(baseline)) {
    pairs.emplace_back();
    const std::map<int, double>& others = of_candidate[process];
    for (const auto& [block, ms] : blocks) {
      const auto paired = others.find(block);
      if (paired == others.end()) continue;
      pairs.back().baseline_ms.push_back(ms);
      pairs.back().candidate_ms.push_back(paired->second);
    }
  }
  return pairs;
}

std::vector<ComparisonReport> compare_engines(const CaseReport& c, double confidence, uint64_t seed,
                                              bool random_order, const SpeedMargin& margin) {
  std::vector<ComparisonReport> result;
  const auto add = [&](const EngineReport& baseline, const EngineReport& candidate) {
    result.push_back(compare(baseline, candidate, confidence, seed, random_order, margin));
  };
  const auto to_baseline = [](const EngineReport& a, const EngineReport& b) {
    return a.role == "baseline" && b.role == "candidate";
  };
  for (const EngineReport& baseline : c.engines) {
    for (const EngineReport& candidate : c.engines) {
      if (to_baseline(baseline, candidate)) add(baseline, candidate);
    }
  }
  for (auto first = c.engines.begin(); first != c.engines.end(); ++first) {
    for (auto other = first + 1; other != c.engines.end(); ++other) {
      if (!first->ms_per_tok || !other->ms_per_tok) continue;
      if (!to_baseline(*first, *other) && !to_baseline(*other, *first)) add(*first, *other);
    }
  }
  return result;
}

}  // namespace mkbench
