#include "harness/archive/versions.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "harness/archive/version_parts.h"
#include "harness/flow/foretold.h"
#include "harness/judge/comparisons.h"
#include "harness/report/ceiling_pattern.h"
#include "harness/report/readings.h"
#include "harness/report/render.h"
#include "references/base/error.h"

namespace mkbench {
namespace {

// Samples of an engine that a change of the machine affects as much as the compared engines.
struct Control {
  std::string name;    // empty: there is none
  std::string unlike;  // why it did different work in the two reports; empty if it did not
  const std::vector<Sample>*base = nullptr, *head = nullptr;
};

// On a GPU only the ceiling is a control: a host-bound baseline does not show the card's speed.
Control control_of(const CaseReport& base, const CaseReport& head, bool cuda) {
  if (base.ceiling.ms_per_tok && head.ceiling.ms_per_tok) {
    const std::string &before = base.ceiling.settings, &after = head.ceiling.settings;
    std::string unlike;
    if (!alike_patterns(before, after)) {
      unlike = fmt::format(
          "the ceiling does not show changes of the machine, because it read in two ways: "
          "BASE {}; HEAD {}",
          before, after);
    }
    return {"ceiling", std::move(unlike), &base.ceiling.samples, &head.ceiling.samples};
  }
  for (const EngineReport& e : base.engines) {
    const EngineReport* other = engine_like(base, e, head);
    if (cuda || gates(e) || !e.ms_per_tok || other == nullptr || !other->ms_per_tok) continue;
    return {e.name, "", &e.samples, &other->samples};
  }
  return {};
}

// Why two times are inconclusive, whatever their interval is; empty if they are usable.
std::string doubt_of(const EngineReport& base, const EngineReport& head, const TimeRatio& ratio,
                     const VersionGate& gate) {
  if (!ratio.ci) {
    return fmt::format(
        "one process gives no interval: BASE has {}, HEAD {}; --processes takes more",
        ratio.base_processes, ratio.head_processes);
  }
  if (std::min(ratio.base_processes, ratio.head_processes) < gate.least_processes)
    return gate.too_few;
  for (const EngineReport* e : {&base, &head}) {
    if (e->card.share > kMostDropped)
      return fmt::format("{:.0f} % of {}'s blocks were dropped", 100 * e->card.share,
                         e == &base ? "BASE" : "HEAD");
  }
  return {};
}

std::string change_text(const TimeRatio& ratio) {
  return fmt::format("{:.2f} % {} [{:+.2f}, {:+.2f}]", 100 * std::abs(ratio.ratio - 1),
                     ratio.ratio < 1 ? "less" : "more", 100 * (ratio.ci->low - 1),
                     100 * (ratio.ci->high - 1));
}

std::string evidence_text(const RatioIntervals& ratio, const RelativeRatio* relative,
                          double allowed, const VersionRow& row) {
  std::string text = fmt::format("takes {}, at {:g} % {}", change_text(ratio.usual),
                                 100 * kRegressionConfidence, change_text(ratio.strict));
  if (relative != nullptr && relative->usual.ci)
    text += fmt::format("; over {} {}", row.control, change_text(relative->strict));
  text += fmt::format("; allowed are {:g} %", 100 * allowed);
  return text;
}

// Mean seconds from the first sample of an engine's process to that of the next; 0 with one process.
double seconds_a_process(const std::vector<Sample>& samples) {
  std::map<int, double> begun;  // the first sample's start, by process
  for (const Sample& s : samples) begun.emplace(s.process, s.start_ms);
  if (begun.size() < 2) return 0;
  const double span = begun.rbegin()->second - begun.begin()->second;
  return 1e-3 * span / (begun.rbegin()->first - begun.begin()->first);
}

// How many processes would tell, where the interval is too wide to: no control disagrees.
std::string more_processes(const RatioIntervals& ratio, double allowed, double seconds) {
  const int enough = processes_to_tell(ratio.usual, allowed, kRegressionConfidence);
  const bool told = regression_verdict(ratio, nullptr, allowed) != Verdict::kInconclusive;
  if (told || enough <= std::min(ratio.usual.base_processes, ratio.usual.head_processes)) return {};
  return fmt::format("; to tell {:g} % here: about {} processes of each (--processes {}){}",
                     200 * allowed, enough, enough,
                     seconds > 0 ? ", " + duration_text(seconds * enough) + " for this case" : "");
}

void compare_times(const EngineReport& base, const EngineReport& head, const Control& control,
                   const VersionGate& gate, VersionRow& row) {
  if (!both_have_times(base, head, row)) return;
  const RatioIntervals ratio = ratio_intervals(times_by_process(base.samples),
                                               times_by_process(head.samples), gate.confidence);
  set_ratio(ratio.usual, row);
  row.relative.reason = "no engine shows changes of the machine";
  if (!gates(base)) {
    row.reason = "a baseline: its time decides nothing";
    return;
  }
  std::optional<RelativeRatio> relative;
  if (!control.unlike.empty()) {
    row.relative.reason = "the control did not do the same work in both reports";
  } else if (!control.name.empty()) {
    relative = {ratio_intervals(times_over(base.samples, *control.base),
                                times_over(head.samples, *control.head), gate.confidence)};
    const std::optional<Interval> machine =
        unpaired_ratio(times_by_process(*control.base), times_by_process(*control.head),
                       gate.confidence)
            .ci;
    relative->machine_faster = machine && machine->high < 1;
    row.control = control.name;
    row.relative = {relative->usual.ratio, {}};
    row.relative_ci = relative->usual.ci;
  }
  judge_times(base, head, ratio, relative ? &*relative : nullptr, gate, row);
  // Without a usable control, a change of the machine may account for the whole difference.
  if (row.verdict == Verdict::kRegression && !control.unlike.empty()) {
    row.verdict = Verdict::kInconclusive;
    row.reason += "; " + control.unlike + "; time HEAD again";
  }
}

// Adds the ceiling's row, which shows whether the machine changed.
void add_ceiling_row(const CaseReport& base, const Control& control, VersionGate& gate) {
  if (control.base != &base.ceiling.samples) return;
  VersionRow row;
  row.case_name = base.name;
  row.engine = row.role = control.name;
  const ByProcess before = times_by_process(*control.base), after = times_by_process(*control.head);
  row.base_ms = summarize_processes(before, gate.confidence).mean;
  row.head_ms = summarize_processes(after, gate.confidence).mean;
  set_ratio(unpaired_ratio(before, after, gate.confidence), row);
  row.relative.reason = row.reason = control.unlike.empty()
                                         ? "shows changes of the machine; its time decides nothing"
                                         : control.unlike;
  gate.rows.push_back(std::move(row));
}

void add_rows(const CaseReport& base, const CaseReport& head, bool cuda, VersionGate& gate) {
  const Control control = control_of(base, head, cuda);
  add_ceiling_row(base, control, gate);
  for (const EngineReport& e : base.engines) {
    const EngineReport* other = engine_like(base, e, head);
    VersionRow row = row_for(base, e);
    row.base_ms = mean_ms(e);
    if (other == nullptr) {
      row.verdict = head.verdict;
      row.reason = first_reason(head.reasons);
      row.ratio.reason = row.relative.reason = "HEAD's case ended before this engine";
    } else {
      row.head_ms = mean_ms(*other);
      const bool only_judged =
          !e.timed && (times_allowed(other->verdict) || other->verdict == Verdict::kSkipped);
      if (only_judged) continue;
      compare_times(e, *other, control, gate, row);
    }
    gate.rows.push_back(std::move(row));
  }
}

// Adds rows for engines that only HEAD has: they can fail, but not be slower.
void add_new_rows(const Report& base, const CaseReport& head, VersionGate& gate) {
  const CaseReport* before = case_like(head, base);
  for (const EngineReport& e : head.engines) {
    if (before != nullptr && engine_like(head, e, *before) != nullptr) continue;
    if (!e.timed && times_allowed(e.verdict)) continue;
    VersionRow row = row_for(head, e);
    row.head_ms = mean_ms(e);
    row.ratio.reason = row.relative.reason = "not in BASE";
    const bool fine = times_allowed(e.verdict) || e.verdict == Verdict::kSkipped;
    row.verdict = fine ? Verdict::kSkipped : e.verdict;
    row.reason = fine ? row.ratio.reason : first_reason(e.reasons);
    gate.rows.push_back(std::move(row));
  }
}

}  // namespace

VersionRow row_for(const CaseReport& c, const EngineReport& e) {
  VersionRow row;
  row.case_name = c.name;
  row.engine = e.name;
  row.role = e.role;
  return row;
}

std::optional<double> mean_ms(const EngineReport& e) {
  if (!e.ms_per_tok) return std::nullopt;
  return e.ms_per_tok->mean;
}

VersionSide side_of(const Report& report, const std::string& name) {
  return {name, json_text(report.meta, {"git_sha"}), json_text(report.meta, {"started"}),
          report.verdict};
}

void conclude_gate(VersionGate& gate) {
  std::vector<Verdict> verdicts;
  bool inconclusive = false;
  for (const VersionRow& row : gate.rows) {
    inconclusive = inconclusive || row.verdict == Verdict::kInconclusive;
    if (row.verdict != Verdict::kInconclusive) verdicts.push_back(row.verdict);
    if (row.verdict == Verdict::kPass || row.verdict == Verdict::kSkipped) continue;
    gate.reasons.push_back(fmt::format("{}: {}: {}: {}", row.case_name, row.engine,
                                       verdict_name(row.verdict), row.reason));
  }
  gate.verdict = worst(verdicts);
  gate.exit_code = exit_code(gate.verdict);
  if (gate.exit_code != 0 || !inconclusive) return;
  gate.verdict = Verdict::kInconclusive;
  gate.exit_code = gate.fails_inconclusive ? exit_code(gate.verdict) : 0;
}

void set_ratio(const TimeRatio& ratio, VersionRow& row) {
  row.ratio = {ratio.ratio, {}};
  row.ci = ratio.ci;
  row.base_processes = ratio.base_processes;
  row.head_processes = ratio.head_processes;
}

bool both_have_times(const EngineReport& base, const EngineReport& head, VersionRow& row) {
  row.ratio.reason = row.relative.reason = "one of the two has no time";
  if (!times_allowed(head.verdict)) {
    row.verdict = head.verdict;
    row.reason = first_reason(head.reasons);
    return false;
  }
  for (const EngineReport* e : {&base, &head}) {
    if (e->ms_per_tok) continue;
    row.verdict = gates(base) ? Verdict::kInconclusive : Verdict::kSkipped;
    row.reason = fmt::format("{} has no time: {}", e == &base ? "BASE" : "HEAD", e->times_withheld);
    return false;
  }
  row.ratio.reason.clear();
  return true;
}

void judge_times(const EngineReport& base, const EngineReport& head, const RatioIntervals& ratio,
                 const RelativeRatio* relative, const VersionGate& gate, VersionRow& row) {
  row.reason = doubt_of(base, head, ratio.usual, gate);
  if (!row.reason.empty()) {
    row.verdict = Verdict::kInconclusive;
    return;
  }
  row.verdict = regression_verdict(ratio, relative, gate.allowed);
  if (row.verdict != Verdict::kPass) row.reason = evidence_text(ratio, relative, gate.allowed, row);
  if (row.verdict == Verdict::kInconclusive)
    row.reason += more_processes(ratio, gate.allowed, seconds_a_process(head.samples));
  if (row.verdict == Verdict::kPass && takes_late_ids(base) && !takes_late_ids(head)) {
    row.verdict = Verdict::kInconclusive;
    row.reason = "HEAD knows its last input id before the clock begins, BASE does not";
  }
  const bool one_name = base.name == head.name;  // false in `mkbench compare` of two files
  if (one_name && base.resolved_name != head.resolved_name) {
    row.reason += fmt::format("{}BASE ran {}, HEAD {}", row.reason.empty() ? "" : "; ",
                              base.resolved_name, head.resolved_name);
  }
}

void begin_gate(const Report& report, const SpeedMargin& margin, const GateLimits& limits,
                VersionGate& gate) {
  gate.machine = clock_machine(report.environment, !is_cpu_report(report));
  gate.confidence = confidence_of(report);
  gate.margin = margin.value();
  gate.margin_source = margin.source;
  gate.least_processes = margin.least_processes;
  gate.too_few = margin.too_few;
  gate.allowed = allowed_regress(limits, margin);
  gate.fails_inconclusive = limits.fails_inconclusive;
}

RatioIntervals ratio_intervals(const ByProcess& base, const ByProcess& head, double confidence) {
  return {unpaired_ratio(base, head, confidence),
          unpaired_ratio(base, head, std::max(confidence, kRegressionConfidence))};
}

Verdict regression_verdict(const RatioIntervals& ratio, const RelativeRatio* relative,
                           double allowed) {
  const auto slower = [&](const RatioIntervals& r) {
    return r.strict.ci && r.strict.ci->low > 1 + allowed;
  };
  const auto passes = [&](const RatioIntervals& r) {
    return r.usual.ci && r.usual.ci->high <= 1 + allowed;
  };
  if (slower(ratio)) {
    const bool agrees =
        relative == nullptr || (relative->usual.ci && relative->usual.ci->low > 1 + allowed);
    return agrees ? Verdict::kRegression : Verdict::kInconclusive;
  }
  if (relative != nullptr && slower(*relative)) return Verdict::kInconclusive;
  const bool hidden = relative != nullptr && relative->machine_faster && !passes(*relative);
  return passes(ratio) && !hidden ? Verdict::kPass : Verdict::kInconclusive;
}

SpeedMargin version_margin(const Report& base, const Report& head) {
  const SpeedMargin before = recorded_margin(base.calibration),
                    after = recorded_margin(head.calibration);
  SpeedMargin margin = before.value() > after.value() ? before : after;
  const SpeedMargin& strict = before.least_processes > after.least_processes ? before : after;
  margin.least_processes = strict.least_processes;
  margin.too_few = strict.too_few;
  return margin;
}

double allowed_regress(const GateLimits& limits, const SpeedMargin& margin) {
  if (!limits.max_regress) return margin.value();
  if (*limits.max_regress < margin.value()) {
    throw Error(ErrorKind::kBadInput,
                fmt::format("--max-regress: found {:g}, wanted at least {:g}, the least difference "
                            "that can be told here ({})",
                            *limits.max_regress, margin.value(), margin.source));
  }
  return *limits.max_regress;
}

VersionGate gate_versions(const Report& base, const std::string& base_name, const Report& head,
                          const std::string& head_name, const GateLimits& limits) {
  refuse_differences(base_name, head_name, version_differences(base, head));
  VersionGate gate;
  gate.base = side_of(base, base_name);
  gate.head = side_of(head, head_name);
  begin_gate(base, version_margin(base, head), limits, gate);
  const bool cuda = !is_cpu_report(base);
  for (const CaseReport& c : base.cases) add_rows(c, *case_like(c, head), cuda, gate);
  for (const CaseReport& c : head.cases) add_new_rows(base, c, gate);
  conclude_gate(gate);
  return gate;
}

}  // namespace mkbench
