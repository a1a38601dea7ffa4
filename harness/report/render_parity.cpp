// Prints parity: its line, its checks, its table.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "harness/report/render.h"
#include "references/base/one_line.h"

namespace mkbench {
namespace {

// "0.06", "55,158": two decimals, from 1,000 on none.
std::string ratio_text(double v) {
  return v < 1000 || std::isinf(v) ? fmt::format("{:.2f}", v) : with_commas(std::llround(v));
}

// ", R_rms 0.06 <= 0.35, R_step 0.2 <= 1, R_inf 0.1 <= 2, R_KL 0.01 <= 1.5 (fp32-accumulate)".
std::string ratios_text(const ParityReport& p) {
  std::string text;
  if (p.r_rms) {
    text += fmt::format(", R_rms {}", ratio_text(*p.r_rms));
    if (p.r_rms_limit > 0) {
      text += fmt::format(" {} {:g}", *p.r_rms <= p.r_rms_limit ? "<=" : ">", p.r_rms_limit);
    }
  }
  constexpr std::pair<Check, const char*> kOthers[] = {
      {Check::kStep, "R_step"}, {Check::kInf, "R_inf"}, {Check::kKl, "R_KL"}};
  for (const auto& [check, name] : kOthers) {
    const CheckResult* r = find_check(p, check);
    if (r == nullptr || !r->value) continue;
    text += fmt::format(", {} {}", name, ratio_text(*r->value));
    if (r->limit) text += fmt::format(" {} {:g}", *r->value <= *r->limit ? "<=" : ">", *r->limit);
  }
  if (p.r_rms && !p.precision.empty()) text += fmt::format(" ({})", p.precision);
  return text;
}

// "; failed checks: r_rms, decided", or nothing.
std::string failed_checks_text(const ParityReport& p) {
  std::vector<std::string_view> names;
  for (const CheckResult& r : p.checks) {
    if (r.status == CheckStatus::kFailed) names.push_back(check_name(r.check));
  }
  return names.empty() ? "" : fmt::format("; failed checks: {}", fmt::join(names, ", "));
}

std::string parity_text(const ParityReport& p) {
  std::string text;
  const std::string source = p.reference.rfind("live", 0) == 0 ? "live fp32 truth" : "HF";
  if (p.strict_steps > 0) {
    text = fmt::format("{} of {} tokens match {} (strict)", with_commas(p.strict_matched),
                       with_commas(p.strict_steps), source);
  }
  const int others = p.steps - p.strict_steps;
  if (others > 0) {
    // Exact rows outside the strict set = all exact rows - exact rows of the strict set.
    auto in_strict = std::count_if(p.rows.begin(), p.rows.end(), [](const ParityRow& r) {
      return r.set == "strict" && r.verdict == StepVerdict::kExact;
    });
    if (p.rows.empty()) in_strict = p.strict_matched;  // judged and passed in an earlier case
    const int exact = p.exact - static_cast<int>(in_strict);
    if (!text.empty()) text += ", ";
    // Ids alone, closed forms and single steps belong to no set.
    const bool near = std::any_of(p.rows.begin(), p.rows.end(),
                                  [](const ParityRow& r) { return r.set == "near-tie"; });
    text += fmt::format("{}: {} of {} exact", near || p.rows.empty() ? "near-tie set" : "tokens",
                        exact, others);
    if (p.ties > 0) text += fmt::format(", {} tie{}", p.ties, p.ties == 1 ? "" : "s");
    if (p.drifts > 0) text += fmt::format(", {} drift", p.drifts);
  }
  if (p.wrong > 0) text += fmt::format(", {} WRONG", p.wrong);
  return text + ratios_text(p);
}

bool wrong_row(const ParityRow& row) { return row.verdict == StepVerdict::kWrong; }

// Ids with text and logit: 108 ("l") 8.70, 121 ("y") 1.10, ...
std::string best_text(const std::vector<ScoredId>& best) {
  std::vector<std::string> parts;
  for (const ScoredId& one : best) {
    const std::string text = one.text.empty() ? "" : " (" + quoted_text(one.text, 12) + ")";
    parts.push_back(fmt::format("{}{} {:.4g}", one.id, text, one.logit));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

// A short table has kRowsBefore rows before the first wrong one, and kOtherRows from there on.
// Without a wrong row it has the first kRowsBefore exact rows and kOtherRows that are not exact.
constexpr std::ptrdiff_t kRowsBefore = 4, kOtherRows = 6;

// A token's text in quotes, so that spaces show; empty if the text is not known.
std::string quoted(const std::string& text) { return text.empty() ? "" : quoted_text(text, 24); }

std::string mark_of(StepVerdict v, const RenderStyle& style) {
  if (!style.utf8) return std::string(step_verdict_name(v));
  switch (v) {
    case StepVerdict::kExact:
      return "\u2713";
    case StepVerdict::kTie:
      return "\u2248";
    case StepVerdict::kDrift:
      return "\u2717 drift";
    case StepVerdict::kWrong:
      return "\u2717";
  }
  return "\u2717";
}

std::vector<const ParityRow*> shown_rows(const ParityReport& parity, const RenderStyle& style) {
  const auto begin = parity.rows.begin(), end = parity.rows.end();
  const auto wrong = std::find_if(begin, end, wrong_row);
  const bool window = !style.whole_tables && wrong != end;
  const auto first = window ? wrong - std::min(wrong - begin, kRowsBefore) : begin;
  std::vector<const ParityRow*> shown;
  std::ptrdiff_t others = 0;
  for (auto row = first; row != end; ++row) {
    const bool exact = row->verdict == StepVerdict::kExact;
    const auto place = std::ssize(shown);
    const bool brief = window  ? place < kRowsBefore + kOtherRows
                       : exact ? place - others < kRowsBefore
                               : others < kOtherRows;
    if (!style.whole_tables && !brief) continue;
    others += !exact;
    shown.push_back(&*row);
  }
  return shown;
}

// "Parity: TRUE (mark) 576 of 576 tokens match".
std::string closing_line(const ParityReport& p, const RenderStyle& style) {
  const std::string match =
      fmt::format("{} of {} tokens match", with_commas(p.exact), with_commas(p.steps));
  if (p.verdict == Verdict::kIncomplete) return fmt::format("Parity: INCOMPLETE, {} so far", match);
  if (exit_code(p.verdict) == 0) {
    std::string text = fmt::format("Parity: TRUE {}{}", style.utf8 ? "\u2713 " : "", match);
    if (p.ties > 0) {
      text += fmt::format(", {} near tie{}{}", with_commas(p.ties), p.ties == 1 ? "" : "s",
                          style.utf8 ? " \u2248" : "");
    }
    return text + (p.drifts > 0 ? fmt::format(", {} drift", p.drifts) : "");
  }
  const auto wrong = std::find_if(p.rows.begin(), p.rows.end(), wrong_row);
  const std::string where = wrong == p.rows.end()
                                ? match + failed_checks_text(p)
                                : fmt::format("first at prompt {}, position {}",
                                              one_line(wrong->prompt), wrong->position);
  return fmt::format("Parity: FALSE {}{}", style.utf8 ? "\u2717 " : "", where);
}

}  // namespace

std::string engine_label(const EngineReport& e) {
  const bool same = e.resolved_name.empty() || e.resolved_name == e.name;
  return same ? e.name : fmt::format("{} ({})", e.name, e.resolved_name);
}

std::string where_text(const ParityReport& p) {
  return p.diagnosis.names.size() == 1 ? "" : p.localised;
}

std::string render_parity_line(const EngineReport& e) {
  const Verdict v = e.parity->verdict;
  std::string line = fmt::format("parity of {}: ", engine_label(e));
  if (v != Verdict::kPass) line += fmt::format("{}: ", verdict_name(v));
  line += parity_text(*e.parity) + failed_checks_text(*e.parity);
  if (!e.parity->reason.empty()) line += "\n  - reason: " + one_line(e.parity->reason, 1000);
  if (!e.parity->coverage.empty()) line += "\n  - " + one_line(e.parity->coverage, 600);
  if (!e.parity->diagnosis.text.empty())
    line += "\n  - bug: " + one_line(e.parity->diagnosis.text, 600);
  for (const std::string& fact : e.parity->facts) line += "\n  - fact: " + one_line(fact, 400);
  const std::string where = where_text(*e.parity);
  if (!where.empty()) line += "\n  - where: " + one_line(where, 800);
  if (e.parity->failed_step) {
    const FailedStep& step = *e.parity->failed_step;
    line += fmt::format("\n  - position {} of '{}': the truth's best: {}; the engine's: {}",
                        step.position, step.prompt, best_text(step.expected_top),
                        step.found_top.empty() ? "not shown" : best_text(step.found_top));
    if (!times_allowed(e.verdict)) line += "\n  - again: `" + step.command + "`";
  }
  return line;
}

std::string render_checks_table(const std::vector<const EngineReport*>& engines) {
  MarkdownTable table({"engine", "checks passed", "failed", "not applicable", "verdict"},
                      {false, true, true, true, false});
  for (const EngineReport* e : engines) {
    std::map<CheckStatus, int> count;
    if (e->parity) {
      for (const CheckResult& r : e->parity->checks) ++count[r.status];
    }
    table.add({engine_label(*e), std::to_string(count[CheckStatus::kPassed]),
               std::to_string(count[CheckStatus::kFailed]),
               std::to_string(count[CheckStatus::kNotApplicable]),
               std::string(verdict_name(e->verdict))});
  }
  return table.str();
}

std::string render_parity_table(const ParityReport& parity, const RenderStyle& style) {
  const std::vector<ParityRow>& rows = parity.rows;
  const bool several = std::any_of(rows.begin(), rows.end(), [&](const ParityRow& r) {
    return r.prompt != rows.front().prompt;
  });
  const std::vector<const ParityRow*> shown = shown_rows(parity, style);
  std::vector<std::string> headings = {"pos", "ref_id", "mk_id", "ref_text", "mk_text", "match"};
  std::vector<bool> right = {true, true, true, false, false, false};
  if (several) {
    headings.insert(headings.begin(), "prompt");
    right.insert(right.begin(), false);
  }
  MarkdownTable table(headings, right);
  for (const ParityRow* row : shown) {
    std::vector<std::string> cells = {
        std::to_string(row->position),  std::to_string(row->reference_id),
        std::to_string(row->engine_id), quoted(row->reference_text),
        quoted(row->engine_text),       mark_of(row->verdict, style)};
    if (several) cells.insert(cells.begin(), one_line(row->prompt, 32));
    table.add(std::move(cells));
  }
  std::string text = rows.empty() ? "" : table.str();
  if (shown.size() < rows.size()) {
    text += fmt::format("\n{} of {} rows; --parity-table prints all, report.json has them\n",
                        with_commas(shown.size()), with_commas(rows.size()));
  }
  return text + (rows.empty() ? "" : "\n") + closing_line(parity, style) + "\n";
}

std::string render_parity_tables(const CaseReport& c, const RenderStyle& style) {
  std::string text;
  for (const EngineReport& e : c.engines) {
    if (!e.parity || e.parity->rows.empty()) continue;
    const bool passed = exit_code(e.parity->verdict) == 0;
    if (passed && !style.whole_tables && e.role != "candidate") continue;
    text += fmt::format("\nParity table of {}, {}:\n\n", engine_label(e), one_line(c.name)) +
            render_parity_table(*e.parity, style);
  }
  return text;
}

}  // namespace mkbench
