// The notes on times below a Markdown table: replication, ratios, drift, warm-up.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "harness/report/render.h"
#include "references/base/one_line.h"

namespace mkbench {
namespace {

// A trend is reported if p < kTrendP and the change over a process's blocks exceeds kTrendChange.
constexpr double kTrendP = 0.01, kTrendChange = 0.002;

std::string signed_percent(double share) { return fmt::format("{:+.2g} %", 100 * share); }

std::string replication_note(const CaseReport& c) {
  int blocks = 0, processes = 0;
  for (const EngineReport& e : c.engines) {
    if (!e.ms_per_tok) continue;
    blocks = std::max(blocks, e.ms_per_tok->count);
    processes = std::max(processes, e.ms_per_tok->processes);
  }
  if (blocks == 0) return {};
  const std::string of_blocks = fmt::format("{} block{}", blocks, blocks == 1 ? "" : "s");
  if (processes == 1)
    return of_blocks + " in one process: the intervals do not cover differences between processes";
  return fmt::format("{} in {} processes of each engine: the intervals are of the processes' means",
                     of_blocks, processes);
}

// "ring over eager: 12.3x [12.2, 12.4]: FASTER (margin 1 %: no calibration of this machine)"
std::string ratio_note(const ComparisonReport& c) {
  if (!c.speedup.value) return {};
  std::string why = c.verdict_reason;
  if (why.empty()) why = fmt::format("margin {:.2g} %: {}", 100 * c.margin, c.margin_source);
  if (!c.caveat.empty()) why += "; " + c.caveat;
  return fmt::format("{} over {}: {}x{}: {} ({})", c.candidate, c.baseline,
                     digits(*c.speedup.value), interval_text(c.ci), c.verdict, one_line(why, 300));
}

std::string drift_note(const EngineReport& e) {
  if (!e.ms_per_tok) return {};
  const Summary& s = *e.ms_per_tok;
  std::string text;
  if (s.lag1.value_or(0) > kMostLag1) {
    text = fmt::format("neighbouring blocks correlate (lag-1 {:.2f})", *s.lag1);
    if (s.ci) {
      text += s.processes > 1 ? ", which an interval over processes allows for"
                              : fmt::format(", for which its interval is {:.1f} times as wide",
                                            std::sqrt(s.inflation));
    }
  }
  const double blocks_apart = static_cast<double>(s.count) / std::max(1, s.processes) - 1;
  if (s.slope && s.slope_p.value_or(1) < kTrendP &&
      std::abs(*s.slope) * blocks_apart > kTrendChange) {
    text += fmt::format("{}its times change by {} a block (p {:.1g})", text.empty() ? "" : "; ",
                        signed_percent(*s.slope), *s.slope_p);
  }
  return text.empty() ? "" : engine_label(e) + ": " + text;
}

std::string warm_up_note(const EngineReport& e) {
  const auto restless = std::find_if(e.warm_ups.begin(), e.warm_ups.end(),
                                     [](const WarmUp& w) { return !w.settled; });
  if (restless == e.warm_ups.end() || !e.ms_per_tok) return {};
  const auto count =
      std::count_if(restless, e.warm_ups.end(), [](const WarmUp& w) { return !w.settled; });
  std::string text =
      fmt::format("{}: not settled after a warm-up of {:.0f} s in {} of {} processes",
                  engine_label(e), restless->seconds, count, e.warm_ups.size());
  if (restless->time_change) {
    text += fmt::format(" (between its last two windows the time changed by {}",
                        signed_percent(*restless->time_change));
    if (restless->clock_change)
      text += fmt::format(", the clock by {}", signed_percent(*restless->clock_change));
    text += ")";
  }
  return text;
}

std::string observed_note(const EngineReport& e) {
  const ObservedReport& o = e.observed;
  const bool told = o.reason.empty() || o.reason == kObservedNotAsked || !e.ms_per_tok;
  const std::string text = !o.caution.empty() ? o.caution : told ? "" : "not observed: " + o.reason;
  return text.empty() ? "" : engine_label(e) + ": " + one_line(text, 400);
}

}  // namespace

std::vector<std::string> timing_notes(const CaseReport& c) {
  std::vector<std::string> notes = {replication_note(c)};
  for (const ComparisonReport& comparison : c.comparisons) notes.push_back(ratio_note(comparison));
  for (const EngineReport& e : c.engines) {
    notes.push_back(drift_note(e));
    notes.push_back(warm_up_note(e));
    notes.push_back(observed_note(e));
  }
  std::erase(notes, "");
  return notes;
}

}  // namespace mkbench
