// The Markdown table, and the tables of a case's engines.
#include <fmt/format.h>

#include <algorithm>

#include "harness/report/readings.h"
#include "harness/report/render.h"
#include "references/base/one_line.h"

namespace mkbench {
namespace {

size_t width_of(const std::string& text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  }));
}

std::string padded(const std::string& text, size_t width, bool right) {
  const std::string space(width - std::min(width, width_of(text)), ' ');
  return right ? space + text : text + space;
}

std::string number_text(const Number& n) { return n.value ? digits(*n.value) : "-"; }

// Speed-up of a candidate over the fastest baseline of the case.
std::string speedup_text(const CaseReport& c, const EngineReport& e) {
  if (e.role == "baseline") return "baseline";
  const ComparisonReport* ratio = headline_ratio(c, e);
  if (ratio == nullptr || !ratio->speedup.value) return "-";
  return fmt::format("{}x{}{}", digits(*ratio->speedup.value), interval_text(ratio->ci),
                     ratio->label.empty() ? "" : " (" + ratio->label + ")");
}

double confidence_of(const CaseReport& c) {
  return c.comparisons.empty() ? 0.95 : c.comparisons.front().confidence;
}

std::string speedup_header(const CaseGroup& group) {
  const bool several = std::any_of(group.begin(), group.end(), [](const CaseReport* c) {
    return std::count_if(c->engines.begin(), c->engines.end(),
                         [](const EngineReport& e) { return e.role == "baseline" && e.timed; }) > 1;
  });
  return fmt::format("speed-up{} [{:g} % CI]", several ? " over the fastest baseline" : "",
                     100 * confidence_of(*group.front()));
}

// True if the tables have a row for the engine: one that only judges has a row only if it fails.
bool has_row(const EngineReport& e) { return e.timed || !times_allowed(e.verdict); }

// "0.64 of 1.5", or "-".
std::string divergence_text(const EngineReport& e) {
  if (!e.parity) return "-";
  for (const CheckResult& r : e.parity->checks) {
    if (r.check == Check::kKl && r.value && r.limit)
      return fmt::format("{:.2f} of {:g}", *r.value, *r.limit);
  }
  return "-";
}

// The table of quantised engines, which read fewer bytes than the others and have looser limits,
// with the numbers that they were judged by. Empty if there are none.
std::string lossy_table(const CaseGroup& group) {
  const bool prefill = group.front()->n_prompt > 0;
  MarkdownTable table(
      {prefill ? "test" : "depth", "engine", "tok/s", prefill ? "TTFT ms, median" : "ms/tok, mean",
       "strict tokens", "R_KL", "verdict"},
      {true, false, true, true, true, true, false});
  bool any = false;
  for (const CaseReport* c : group) {
    for (const EngineReport& e : c->engines) {
      if (!is_quantised(e) || !has_row(e)) continue;
      any = true;
      const std::string ms =
          prefill
              ? number_text(e.ttft_ms)
              : (e.ms_per_tok ? digits(e.ms_per_tok->mean) + interval_text(e.ms_per_tok->ci) : "-");
      table.add({prefill ? fmt::format("pp{}", c->n_prompt) : with_commas(c->depth),
                 engine_label(e), number_text(e.tok_per_s), ms,
                 fmt::format("{} of {}", e.parity->strict_matched, e.parity->strict_steps),
                 divergence_text(e), std::string(verdict_name(e.verdict))});
    }
  }
  if (!any) return {};
  return "\nQuantised engines, ranked with none of the others:\n\n" + table.str();
}

// The table of prefill tests. Rate and speed-up cover prefill and first token together, because an
// engine may postpone its prefill until it is asked for a token.
std::string prefill_table(const CaseGroup& group) {
  MarkdownTable table({"test", "engine", "tok/s", "TTFT ms, median", "prefill alone",
                       speedup_header(group), "verdict"},
                      {true, false, true, true, true, true, false});
  for (const CaseReport* c : group) {
    for (const EngineReport& e : c->engines) {
      if (is_quantised(e) || !has_row(e)) continue;
      table.add({fmt::format("pp{}", c->n_prompt), engine_label(e), number_text(e.tok_per_s),
                 number_text(e.ttft_ms), number_text(e.prefill_ms), speedup_text(*c, e),
                 std::string(verdict_name(e.verdict))});
    }
  }
  return table.str();
}

std::string microseconds(const Number& n) {
  return n.value ? fmt::format("{:.1f}", *n.value) : "-";
}

std::vector<const EngineReport*> engines_of(const CaseGroup& group) {
  std::vector<const EngineReport*> engines;
  for (const CaseReport* c : group) {
    for (const EngineReport& e : c->engines) engines.push_back(&e);
  }
  return engines;
}

}  // namespace

bool is_parity_case(const CaseReport& c) { return c.n_gen == 0 && c.n_prompt == 0; }

std::string profile_table(const CaseGroup& group) {
  MarkdownTable table(
      {"depth", "engine", "us/tok", "without waits", "of the ceiling", "without loads", "binds"},
      {true, false, true, true, true, true, false});
  bool any = false;
  for (const CaseReport* c : group) {
    for (const EngineReport& e : c->engines) {
      if (!e.profile) continue;
      any = true;
      const ProfileReport& p = *e.profile;
      table.add({with_commas(c->depth), engine_label(e), microseconds(p.full_us),
                 microseconds(p.no_waits_us), percent_text(p.no_waits_fraction),
                 microseconds(p.no_loads_us), p.binds.empty() ? "-" : p.binds});
    }
  }
  if (!any) return {};
  return "\nAblations (diagnostics, no samples): medians of runs in which no block waits for "
         "another, and in which nothing is read.\n\n" +
         table.str();
}

std::string engine_table(const CaseGroup& group) {
  if (is_parity_case(*group.front())) return render_checks_table(engines_of(group));
  if (group.front()->n_prompt > 0) return prefill_table(group) + lossy_table(group);
  const std::string percent = fmt::format("{:g} %", 100 * confidence_of(*group.front()));
  std::vector<std::string> headings = {"depth", "engine", "tok/s",
                                       fmt::format("ms/tok, mean [{} CI]", percent),
                                       speedup_header(group)};
  // There is no ceiling on a CPU.
  const std::vector<const EngineReport*> engines = engines_of(group);
  const bool has_ceiling = std::any_of(engines.begin(), engines.end(), [](const EngineReport* e) {
    return e->device.rfind("cuda", 0) == 0;
  });
  if (has_ceiling) headings.push_back(fmt::format("share of the ceiling [{} CI]", percent));
  headings.emplace_back("verdict");
  std::vector<bool> right(headings.size(), true);
  right[1] = right.back() = false;
  MarkdownTable table(std::move(headings), std::move(right));
  for (const CaseReport* c : group) {
    for (const EngineReport& e : c->engines) {
      if (is_quantised(e) || !has_row(e)) continue;  // lossy_table() has the lossy ones
      const std::string ms =
          e.ms_per_tok ? digits(e.ms_per_tok->mean) + interval_text(e.ms_per_tok->ci) : "-";
      std::vector<std::string> cells = {with_commas(c->depth), engine_label(e),
                                        number_text(e.tok_per_s), ms, speedup_text(*c, e)};
      if (has_ceiling) cells.push_back(share_text(e));
      cells.emplace_back(verdict_name(e.verdict));
      table.add(std::move(cells));
    }
  }
  return table.str() + lossy_table(group);
}

std::string summary_table(const Report& report) {
  CaseGroup all;
  for (const CaseReport& c : report.cases) all.push_back(&c);
  const bool has_ceiling = !is_cpu_report(report);
  std::vector<std::string> headings = {
      "model",
      "depth",
      "engine",
      "is",
      "tok/s",
      fmt::format("ms/tok [{:g} %]", 100 * confidence_of(*all.front())),
      "against the baseline"};
  if (has_ceiling) headings.emplace_back("share of the ceiling");
  std::vector<bool> to_the_right(headings.size(), true);
  to_the_right[0] = to_the_right[2] = to_the_right[3] = false;
  MarkdownTable table(std::move(headings), std::move(to_the_right));
  for (const CaseReport* c : all) {
    const bool prefill = c->n_prompt > 0;
    for (const EngineReport& e : c->engines) {
      if (!has_row(e)) continue;
      const bool right = e.verdict == Verdict::kPass || e.verdict == Verdict::kPassLive;
      const std::string ms = prefill ? number_text(e.ttft_ms) + " to the first token"
                             : e.ms_per_tok
                                 ? digits(e.ms_per_tok->mean) + interval_text(e.ms_per_tok->ci)
                                 : "-";
      std::vector<std::string> cells = {
          one_line(c->model),
          prefill ? fmt::format("pp{}", c->n_prompt) : with_commas(c->depth),
          engine_label(e),
          right ? "RIGHT" : std::string(verdict_name(e.verdict)),
          number_text(e.tok_per_s),
          ms,
          speedup_text(*c, e)};
      if (has_ceiling) cells.push_back(share_text(e));
      table.add(std::move(cells));
    }
  }
  return table.str();
}

void MarkdownTable::add(std::vector<std::string> cells) {
  for (std::string& cell : cells) {
    for (size_t bar = cell.find('|'); bar != std::string::npos; bar = cell.find('|', bar + 2)) {
      cell.insert(bar, "\\");
    }
  }
  rows_.push_back(std::move(cells));
}

std::string quoted_text(const std::string& text, size_t max_length) {
  std::string inside = one_line(text, max_length);
  for (size_t at = inside.find('"'); at != std::string::npos; at = inside.find('"', at + 2))
    inside.insert(at, "\\");
  inside = "\"" + inside + "\"";
  const bool plain = inside.find_first_of("<>&*_`[]~|$@#") == std::string::npos &&
                     inside.find("\\\\") == std::string::npos &&
                     inside.find("://") == std::string::npos;
  if (plain) return inside;
  std::string fence = "`";
  while (inside.find(fence) != std::string::npos) fence += '`';
  return fence + inside + fence;
}

std::string MarkdownTable::str() const {
  std::vector<size_t> widths(right_.size(), 3);
  for (const auto& row : rows_) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width_of(row[i]));
  }
  std::string text;
  for (size_t r = 0; r < rows_.size(); ++r) {
    for (size_t i = 0; i < widths.size(); ++i) {
      text += (i == 0 ? "| " : " ") + padded(rows_[r][i], widths[i], right_[i]) + " |";
    }
    text += "\n";
    if (r != 0) continue;
    for (size_t i = 0; i < widths.size(); ++i) {
      const std::string rule(widths[i] + 1, '-');
      text += (i == 0 ? "|" : "") + (right_[i] ? rule + ":" : ":" + rule) + "|";
    }
    text += "\n";
  }
  return text;
}

}  // namespace mkbench
