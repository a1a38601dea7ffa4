#include "harness/judge/comparisons.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <map>

#include "harness/judge/card_figures.h"
#include "harness/judge/observed.h"
#include "harness/judge/share.h"
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

// Samples of one engine lie in two heaps if the upper one begins at this multiple of the lower
// one's end, and each has kLeastHeap samples.
constexpr double kHeapsApart = 2;
constexpr int kLeastHeap = 2;

void withhold_verdict(const std::string& why, ComparisonReport& c) {
  if (why.empty()) return;
  c.verdict = "INCONCLUSIVE";
  c.verdict_reason += (c.verdict_reason.empty() ? "" : "; ") + why;
}

// "ring's samples lie in two heaps: 3 of 0.0003 to 0.0004 ms a token, 5 of 0.1700 to 0.1800": not
// all of them did the same work. Empty if they do not.
std::string two_heaps(const EngineReport& e) {
  std::vector<double> ms;
  for (const Sample& s : e.samples) {
    if (s.valid) ms.push_back(s.ms_per_token());
  }
  std::sort(ms.begin(), ms.end());
  const auto last = std::ssize(ms) - kLeastHeap;
  for (std::ptrdiff_t i = kLeastHeap; i <= last; ++i) {
    const auto upper = ms.begin() + i;
    if (*upper < kHeapsApart * upper[-1]) continue;
    return fmt::format(
        "{}'s samples lie in two heaps: {} of {:.4f} to {:.4f} ms a token, {} of {:.4f} to {:.4f}",
        e.name, i, ms.front(), upper[-1], ms.end() - upper, *upper, ms.back());
  }
  return {};
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
  if (is_quantised(baseline) == is_quantised(candidate)) return;
  c.label = "lossy";
  c.verdict = "INCONCLUSIVE";
  c.verdict_reason = (is_quantised(candidate) ? candidate : baseline).name +
                     " is quantised, and not ranked beside an engine that is not";
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
  withhold_unobserved(baseline, candidate, c);
  label_lossy(baseline, candidate, c);
  label_dropped_blocks(baseline, candidate, c);
  for (const EngineReport* e : {&baseline, &candidate}) withhold_verdict(two_heaps(*e), c);
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
  const std::string doubt = ceiling_doubt(c);
  const auto add = [&](const EngineReport& baseline, const EngineReport& candidate) {
    result.push_back(compare(baseline, candidate, confidence, seed, random_order, margin));
    if (result.back().verdict == "FASTER") withhold_verdict(doubt, result.back());
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
