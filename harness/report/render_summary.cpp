// The first screen of a run: which engines are right, how fast they are, and what to do next. All
// else is in report.md.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "harness/report/known_errors.h"
#include "harness/report/readings.h"
#include "harness/report/render.h"
#include "references/base/one_line.h"

namespace mkbench {
namespace {

constexpr double kNearCeiling = 0.9;  // with a lower share a profile is suggested

// "timed tokens: 256 of 256 are right; tokens that the reference is sure of: 736 of 736 equal". Names
// the engines that were timed where a candidate was not.
std::string tokens_line(const Report& report) {
  int64_t checked = 0, wrong = 0, steps = 0, matched = 0;
  std::set<std::string> timed;
  bool all = true;
  for (const CaseReport& c : report.cases) {
    for (const EngineReport& e : c.engines) {
      checked += e.receipts_checked;
      wrong += e.receipts_wrong;
      if (e.receipts_checked > 0) timed.insert(one_line(e.name));
      all = all && (e.role != "candidate" || e.receipts_checked > 0);
      if (e.role != "candidate" || !e.parity || !e.parity->judged_in.empty()) continue;
      steps += e.parity->strict_steps;
      matched += e.parity->strict_matched;
    }
  }
  std::string text;
  if (checked > 0)
    text = fmt::format("timed tokens{}: {} of {} are right",
                       all ? "" : fmt::format(" of {}", fmt::join(timed, ", ")),
                       with_commas(checked - wrong), with_commas(checked));
  if (steps > 0)
    text += fmt::format("{}tokens that the reference is sure of: {} of {} equal",
                        text.empty() ? "" : "; ", with_commas(matched), with_commas(steps));
  return text;
}

// What is said of each model's weights, once.
std::string weights_lines(const Report& report) {
  std::set<std::string> told;
  std::string text;
  for (const CaseReport& c : report.cases) {
    for (const std::string& note : weights_notes(c)) {
      const std::string line = fmt::format("{}: {}\n", one_line(c.model), note);
      if (told.insert(line).second) text += line;
    }
  }
  return text;
}

// Enough for what a plan warns of: the machine's state, then ring's pace.
constexpr size_t kMostCautions = 2;

// The most important caveats on the times; empty if there is none.
std::string caution_line(const Report& report, const RenderStyle& style) {
  if (is_cpu_report(report)) {
    const std::string banner = json_text(report.environment, {"banner"});
    return fmt::format(
        "caution: {}: {}",
        banner.empty() || !style.tells_fallback ? "no GPU was used" : one_line(banner),
        cpu_note(report));
  }
  if (report.meta.contains("warnings") && report.meta["warnings"].is_array()) {
    std::vector<std::string> lines;
    for (const auto& warning : report.meta["warnings"]) {
      if (warning.is_string() && lines.size() < kMostCautions)
        lines.push_back("caution: " + one_line(warning.get<std::string>(), 300));
    }
    if (!lines.empty()) return fmt::format("{}", fmt::join(lines, "\n"));
  }
  for (const CaseReport& c : report.cases) {
    for (const EngineReport& e : c.engines) {
      if (!e.observed.caution.empty())
        return fmt::format("caution: {}: {}", e.name, one_line(e.observed.caution, 200));
    }
    for (const ComparisonReport& ratio : c.comparisons) {
      if (!ratio.verdict_reason.empty())
        return fmt::format("caution: {} over {}: {}: {}", ratio.candidate, ratio.baseline,
                           ratio.verdict, one_line(ratio.verdict_reason, 200));
    }
  }
  return {};
}

// eager judges every model that graph, compiled and profile compute.
bool judged_by_eager(const CaseReport& c) {
  return std::any_of(c.engines.begin(), c.engines.end(),
                     [](const EngineReport& e) { return e.name == "eager"; });
}

// What to try after a run that passed.
std::string next_line(const Report& report) {
  if (is_cpu_report(report))
    return has_host_twin(report) ? "next: on a machine with a GPU, scripts/remote.sh user@host "
                                   "--compare eager; mkbench "
                                   "doctor says what is missing here"
                                 : "next: the same command on a machine with a GPU; mkbench doctor "
                                   "says what is missing "
                                   "here";
  const EngineReport* slow = nullptr;
  const CaseReport* in = nullptr;
  for (const CaseReport& c : report.cases) {
    for (const EngineReport& e : c.engines) {
      const bool lower = e.share.value && *e.share.value < kNearCeiling &&
                         (slow == nullptr || *e.share.value < *slow->share.value);
      if (e.role != "candidate" || !lower || !judged_by_eager(c)) continue;
      slow = &e;
      in = &c;
    }
  }
  if (slow == nullptr && std::none_of(report.cases.begin(), report.cases.end(), judged_by_eager))
    return {};
  if (slow == nullptr)
    return "next: --compare eager,graph,compiled times baselines without gaps between launches";
  return fmt::format(
      "next: mkbench profile --timeline --engine {} --model {} -d {}: where its time goes",
      slow->name, in->model, in->depth);
}

// What leads to the cause of a failure: the known bug that explains it, or else what the failing steps
// have in common; and the command that repeats the first of them.
std::string leads(const EngineReport& e) {
  if (times_allowed(e.verdict) || !e.parity) return {};
  const ParityReport& p = *e.parity;
  std::string text;
  if (!p.diagnosis.text.empty()) text += fmt::format("bug: {}\n", one_line(p.diagnosis.text, 600));
  if (p.diagnosis.names.empty()) {
    for (const std::string& fact : p.facts) text += fmt::format("fact: {}\n", one_line(fact, 400));
  }
  return text + (p.failed_step ? fmt::format("again: {}\n", p.failed_step->command) : "");
}

}  // namespace

std::string first_lead(const Report& report) {
  for (const CaseReport& c : report.cases) {
    for (const EngineReport& e : c.engines) {
      if (times_allowed(e.verdict) || !e.parity) continue;
      const Diagnosis& bug = e.parity->diagnosis;
      const std::string& lead = bug.names.empty() ? e.parity->localised : bug.text;
      if (!lead.empty() && !lead.starts_with("not localised"))
        return fmt::format("{}, {}: {}", one_line(c.model), one_line(e.name), one_line(lead, 600));
    }
  }
  return {};
}

std::string render_summary(const Report& report, double seconds, const std::string& page,
                           const RenderStyle& style) {
  const auto& env = report.environment;
  std::string text = fmt::format("mkbench {} on {}\n\n", json_text(report.meta, {"version"}),
                                 is_cpu_report(report) ? json_text(env, {"cpu", "name"}, "a CPU")
                                                       : json_text(env, {"device"}));
  if (!report.cases.empty()) text += summary_table(report) + "\n";
  for (const CaseReport& c : report.cases) {
    if (c.verdict == Verdict::kPass || c.verdict == Verdict::kPassLive) continue;
    text += fmt::format("{}: {}\n", one_line(c.name), verdict_note(c, false));
    for (const EngineReport& e : c.engines) text += leads(e);
  }
  text += weights_lines(report);
  const bool passed = report.exit_code == 0;
  for (const std::string& line : {tokens_line(report), caution_line(report, style),
                                  passed ? next_line(report) : std::string()}) {
    if (!line.empty()) text += line + "\n";
  }
  return text + verdict_line(report, fmt::format(" in {:.0f} s", seconds)) +
         fmt::format("report: {}\n", page);
}

}  // namespace mkbench
