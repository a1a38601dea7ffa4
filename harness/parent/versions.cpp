#include "harness/parent/versions.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "harness/parent/recompute.h"
#include "harness/report/aggregate_card.h"
#include "harness/report/comparisons.h"
#include "harness/report/render.h"
#include "references/base/error.h"
#include "references/base/json_strict.h"

namespace mkbench {
namespace {

constexpr double kDefaultConfidence = 0.95;

// A field that two reports must agree on, and what each of them holds.
std::string differ(const std::string& field, const std::string& base, const std::string& head) {
  const auto shown = [](const std::string& text) {
    return text.empty() ? std::string("nothing") : in_quotes(text);
  };
  return fmt::format("{}: BASE {}, HEAD {}", field, shown(base), shown(head));
}

void need_same(std::vector<std::string>& all, const std::string& field, const std::string& base,
               const std::string& head) {
  if (base != head) all.push_back(differ(field, base, head));
}

double confidence_of(const Report& report) {
  const double recorded = recorded_options(report.meta).confidence;
  return recorded > 0 ? recorded : kDefaultConfidence;
}

bool same_axes(const CaseReport& a, const CaseReport& b) {
  return a.depth == b.depth && a.n_gen == b.n_gen && a.n_prompt == b.n_prompt;
}

const CaseReport* case_like(const CaseReport& c, const Report& in) {
  const auto found = std::find_if(in.cases.begin(), in.cases.end(), [&](const CaseReport& other) {
    return other.model == c.model && same_axes(other, c);
  });
  return found == in.cases.end() ? nullptr : &*found;
}

// The engine of another case that was asked for by the same name, in the same role; the second one
// where the engine is the second one of its name.
const EngineReport* engine_like(const CaseReport& c, const EngineReport& e, const CaseReport& in) {
  const auto alike = [&](const EngineReport& other) {
    return other.name == e.name && other.role == e.role;
  };
  auto before = std::count_if(c.engines.data(), &e, alike);
  for (const EngineReport& other : in.engines) {
    if (alike(other) && before-- == 0) return &other;
  }
  return nullptr;
}

// HEAD's case ended before it had engines: its own verdict is the result.
bool failed_alone(const CaseReport& c) {
  return !times_allowed(c.verdict) && c.verdict != Verdict::kSkipped && c.engines.empty();
}

std::string first_or(const std::vector<std::string>& reasons, const std::string& fallback) {
  return reasons.empty() ? fallback : reasons.front();
}

// A case of BASE that HEAD does not have. Where HEAD has one case of the model that BASE does not
// have either, their axes differ.
void tell_missing_case(const CaseReport& c, const Report& base, const Report& head,
                       std::vector<std::string>& all) {
  std::vector<const CaseReport*> others;
  for (const CaseReport& other : head.cases) {
    if (other.model == c.model && case_like(other, base) == nullptr) others.push_back(&other);
  }
  if (others.size() != 1) {
    all.push_back(fmt::format("case {}: is not in HEAD", in_quotes(c.name)));
    return;
  }
  const auto axis = [&](const char* name, int CaseReport::*member) {
    need_same(all, fmt::format("case {}: axes.{}", in_quotes(c.name), name),
              std::to_string(c.*member), std::to_string(others.front()->*member));
  };
  axis("depth", &CaseReport::depth);
  axis("n_gen", &CaseReport::n_gen);
  axis("n_prompt", &CaseReport::n_prompt);
}

void compare_cases(const CaseReport& base, const CaseReport& head, std::vector<std::string>& all) {
  const std::string name = fmt::format("case {}: ", in_quotes(base.name));
  // Weights that were not loaded have no sha256, and the case's verdict says why.
  if (!base.weights_sha256.empty() && !head.weights_sha256.empty())
    need_same(all, name + "model.weights_sha256", base.weights_sha256, head.weights_sha256);
  if (failed_alone(head)) return;
  for (const EngineReport& e : base.engines) {
    const EngineReport* other = engine_like(base, e, head);
    if (!e.timed) continue;
    if (other == nullptr) {
      all.push_back(fmt::format("{}engine {}: is not in HEAD", name, in_quotes(e.name)));
    } else if (!other->timed) {
      all.push_back(fmt::format("{}engine {}: is not timed in HEAD", name, in_quotes(e.name)));
    } else if (other->verdict == Verdict::kSkipped) {
      all.push_back(fmt::format("{}engine {}: is SKIPPED in HEAD: {}", name, in_quotes(e.name),
                                first_or(other->reasons, "no reason recorded")));
    }
  }
}

bool gates(const EngineReport& e) { return e.role == "candidate"; }

bool has_timed_candidate(const Report& report) {
  return std::any_of(report.cases.begin(), report.cases.end(), [](const CaseReport& c) {
    return std::any_of(c.engines.begin(), c.engines.end(),
                       [](const EngineReport& e) { return gates(e) && e.ms_per_tok; });
  });
}

// Samples of an engine that a change of the machine hits as it hits the others.
struct Control {
  std::string name;  // empty: there is none
  const std::vector<Sample>*base = nullptr, *head = nullptr;
};

// On a GPU a baseline that the host binds tells nothing of the card, the ceiling does.
Control control_of(const CaseReport& base, const CaseReport& head, bool cuda) {
  if (base.ceiling.ms_per_tok && head.ceiling.ms_per_tok)
    return {"ceiling", &base.ceiling.samples, &head.ceiling.samples};
  for (const EngineReport& e : base.engines) {
    const EngineReport* other = engine_like(base, e, head);
    if (cuda || gates(e) || !e.ms_per_tok || other == nullptr || !other->ms_per_tok) continue;
    return {e.name, &e.samples, &other->samples};
  }
  return {};
}

// Why times of these two say nothing, whatever their interval is; empty where they do.
std::string doubt_of(const EngineReport& base, const EngineReport& head, const TimeRatio& ratio) {
  if (!ratio.ci) {
    return fmt::format(
        "one process gives no interval: BASE has {}, HEAD {}; --processes takes more",
        ratio.base_processes, ratio.head_processes);
  }
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

std::string evidence_text(const RatioIntervals& ratio, const RatioIntervals* relative,
                          double allowed, const VersionRow& row) {
  std::string text = fmt::format("takes {}, at {:g} % {}", change_text(ratio.usual),
                                 100 * kRegressionConfidence, change_text(ratio.strict));
  if (relative != nullptr && relative->usual.ci)
    text += fmt::format("; over {} {}", row.control, change_text(relative->strict));
  text += fmt::format("; allowed are {:g} %", 100 * allowed);
  return text;
}

void judge_times(const EngineReport& base, const EngineReport& head, const RatioIntervals& ratio,
                 const RatioIntervals* relative, double allowed, VersionRow& row) {
  row.reason = doubt_of(base, head, ratio.usual);
  if (!row.reason.empty()) {
    row.verdict = Verdict::kInconclusive;
    return;
  }
  row.verdict = regression_verdict(ratio, relative, allowed);
  if (row.verdict != Verdict::kPass) row.reason = evidence_text(ratio, relative, allowed, row);
  if (row.verdict == Verdict::kPass && takes_late_ids(base) && !takes_late_ids(head)) {
    row.verdict = Verdict::kInconclusive;
    row.reason = "HEAD knows its last input id before the clock begins, BASE does not";
  }
  if (base.resolved_name != head.resolved_name) {
    row.reason += fmt::format("{}BASE ran {}, HEAD {}", row.reason.empty() ? "" : "; ",
                              base.resolved_name, head.resolved_name);
  }
}

void set_ratio(const TimeRatio& ratio, VersionRow& row) {
  row.ratio = {ratio.ratio, {}};
  row.ci = ratio.ci;
  row.base_processes = ratio.base_processes;
  row.head_processes = ratio.head_processes;
}

void compare_times(const EngineReport& base, const EngineReport& head, const Control& control,
                   const VersionGate& gate, VersionRow& row) {
  row.ratio.reason = row.relative.reason = "one of both has no time";
  if (!times_allowed(head.verdict)) {
    row.verdict = head.verdict;
    row.reason = first_or(head.reasons, "no reason recorded");
    return;
  }
  for (const EngineReport* e : {&base, &head}) {
    if (e->ms_per_tok) continue;
    row.verdict = gates(base) ? Verdict::kInconclusive : Verdict::kSkipped;
    row.reason = fmt::format("{} has no time: {}", e == &base ? "BASE" : "HEAD", e->times_withheld);
    return;
  }
  const RatioIntervals ratio = ratio_intervals(times_by_process(base.samples),
                                               times_by_process(head.samples), gate.confidence);
  set_ratio(ratio.usual, row);
  row.relative.reason = "no engine tells a change of the machine";
  if (!gates(base)) {
    row.reason = "a baseline: its time decides nothing";
    return;
  }
  std::optional<RatioIntervals> relative;
  if (!control.name.empty()) {
    relative = ratio_intervals(times_over(base.samples, *control.base),
                               times_over(head.samples, *control.head), gate.confidence);
    row.control = control.name;
    row.relative = {relative->usual.ratio, {}};
    row.relative_ci = relative->usual.ci;
  }
  judge_times(base, head, ratio, relative ? &*relative : nullptr, gate.allowed, row);
}

// What the ceiling's time says of the machine.
void add_ceiling_row(const CaseReport& base, const Control& control, VersionGate& gate) {
  if (control.base != &base.ceiling.samples) return;
  VersionRow row;
  row.case_name = base.name;
  row.engine = row.role = control.name;
  const ByProcess before = times_by_process(*control.base), after = times_by_process(*control.head);
  row.base_ms = summarize_processes(before, gate.confidence).mean;
  row.head_ms = summarize_processes(after, gate.confidence).mean;
  set_ratio(unpaired_ratio(before, after, gate.confidence), row);
  row.relative.reason = row.reason = "tells a change of the machine; its time decides nothing";
  gate.rows.push_back(std::move(row));
}

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

void add_rows(const CaseReport& base, const CaseReport& head, bool cuda, VersionGate& gate) {
  const Control control = control_of(base, head, cuda);
  add_ceiling_row(base, control, gate);
  for (const EngineReport& e : base.engines) {
    const EngineReport* other = engine_like(base, e, head);
    VersionRow row = row_for(base, e);
    row.base_ms = mean_ms(e);
    if (other == nullptr) {
      row.verdict = head.verdict;
      row.reason = first_or(head.reasons, "no reason recorded");
      row.ratio.reason = row.relative.reason = "HEAD's case ended before it";
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

// What HEAD has and BASE has not: it can fail, and not be slower.
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
    row.reason = fine ? row.ratio.reason : first_or(e.reasons, "no reason recorded");
    gate.rows.push_back(std::move(row));
  }
}

VersionSide side_of(const Report& report, const std::string& name) {
  return {name, json_text(report.meta, {"git_sha"}), json_text(report.meta, {"started"}),
          report.verdict};
}

// A row that is INCONCLUSIVE hides none that has failed, INCOMPLETE included.
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

}  // namespace

RatioIntervals ratio_intervals(const ByProcess& base, const ByProcess& head, double confidence) {
  return {unpaired_ratio(base, head, confidence),
          unpaired_ratio(base, head, std::max(confidence, kRegressionConfidence))};
}

Verdict regression_verdict(const RatioIntervals& ratio, const RatioIntervals* relative,
                           double allowed) {
  if (!ratio.usual.ci) return Verdict::kInconclusive;
  const auto slower = [&](const RatioIntervals& r) {
    return r.strict.ci && r.strict.ci->low > 1 + allowed;
  };
  const bool is_slower = slower(ratio);
  if (relative != nullptr && slower(*relative) != is_slower) return Verdict::kInconclusive;
  if (is_slower) return Verdict::kRegression;
  return ratio.usual.ci->high <= 1 + allowed ? Verdict::kPass : Verdict::kInconclusive;
}

std::vector<std::string> machine_differences(const Report& base, const Report& head) {
  const bool base_cuda = !is_cpu_report(base), head_cuda = !is_cpu_report(head);
  if (base_cuda != head_cuda)
    return {differ("env.device", json_text(base.environment, {"device"}),
                   json_text(head.environment, {"device"}))};
  const ClockMachine before = clock_machine(base.environment, base_cuda),
                     after = clock_machine(head.environment, head_cuda);
  std::vector<std::string> all;
  need_same(all, base_cuda ? "env.gpu.name" : "env.cpu.name", before.device, after.device);
  need_same(all, "env.gpu.uuid", before.uuid, after.uuid);
  need_same(all, base_cuda ? "env.gpu.driver" : "env.cpu.kernel", before.driver, after.driver);
  need_same(all, "calibration.clock", recorded_margin(base.calibration).source,
            recorded_margin(head.calibration).source);
  return all;
}

std::vector<std::string> version_differences(const Report& base, const Report& head) {
  std::vector<std::string> all = machine_differences(base, head);
  for (const Report* report : {&base, &head}) {
    if (report->interrupted)
      all.push_back(
          fmt::format("verdict.interrupted: {} is partial; mkbench --resume goes on with it",
                      report == &base ? "BASE" : "HEAD"));
  }
  need_same(all, "meta.options.confidence", fmt::format("{:g}", confidence_of(base)),
            fmt::format("{:g}", confidence_of(head)));
  if (!has_timed_candidate(base)) all.emplace_back("cases: BASE has no candidate with a time");
  for (const CaseReport& c : base.cases) {
    const CaseReport* other = case_like(c, head);
    if (other == nullptr) {
      tell_missing_case(c, base, head, all);
    } else {
      compare_cases(c, *other, all);
    }
  }
  return all;
}

void refuse_differences(const std::string& base, const std::string& head,
                        const std::vector<std::string>& differences) {
  if (differences.empty()) return;
  throw Error(ErrorKind::kBadInput, fmt::format("gate: {} and {} cannot be compared: {}", base,
                                                head, fmt::join(differences, "; ")));
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
  gate.machine = clock_machine(base.environment, !is_cpu_report(base));
  gate.confidence = confidence_of(base);
  // The half-width depends on the number of processes too, so that those of both may differ.
  const SpeedMargin before = recorded_margin(base.calibration),
                    after = recorded_margin(head.calibration);
  const SpeedMargin& margin = before.value() > after.value() ? before : after;
  gate.margin = margin.value();
  gate.margin_source = margin.source;
  gate.allowed = allowed_regress(limits, margin);
  gate.fails_inconclusive = limits.fails_inconclusive;
  const bool cuda = !is_cpu_report(base);
  for (const CaseReport& c : base.cases) add_rows(c, *case_like(c, head), cuda, gate);
  for (const CaseReport& c : head.cases) add_new_rows(base, c, gate);
  conclude_gate(gate);
  return gate;
}

}  // namespace mkbench
