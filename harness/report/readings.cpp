#include "harness/report/readings.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

namespace mkbench {

std::string cost_text(const FormatCost& cost) {
  std::string text = fmt::format(
      "against {}, over {} ids: KL {:.4g} a step (largest {:.3g}), the same largest logit at "
      "{:.1f} %",
      cost.original, cost.steps, cost.kl, cost.largest_kl, 100 * cost.same_top);
  if (cost.perplexity.value && cost.original_perplexity.value)
    text += fmt::format(", perplexity {:.4g} in place of {:.4g} over {} ids of text",
                        *cost.perplexity.value, *cost.original_perplexity.value, cost.text_steps);
  return text;
}

bool is_quantised(const EngineReport& e) {
  return e.own_weights ||
         (e.parity && e.parity->precision == precision_class_name(PrecisionClass::kLossy));
}

std::string case_reason(const EngineReport& e, const std::string& why) {
  return fmt::format("{}: {}: {}", e.name, verdict_name(e.verdict), why);
}

bool parity_tells(const CaseReport& c, const std::string& reason) {
  return std::any_of(c.engines.begin(), c.engines.end(), [&](const EngineReport& e) {
    return e.parity && !e.parity->reason.empty() && reason == case_reason(e, e.parity->reason);
  });
}

bool parity_tells_first(const Report& report) {
  return !report.reasons.empty() &&
         std::any_of(report.cases.begin(), report.cases.end(), [&](const CaseReport& c) {
           const std::string &first = report.reasons.front(), begin = c.name + ": ";
           return first.starts_with(begin) && parity_tells(c, first.substr(begin.size()));
         });
}

bool has_host_twin(const Report& report) {
  for (const CaseReport& c : report.cases) {
    for (const EngineReport& e : c.engines) {
      if (e.name == kHostTwin || e.resolved_name == kHostTwin) return true;
    }
  }
  return false;
}

std::string cpu_note(const Report& report) {
  return has_host_twin(report)
             ? "the host twin runs the kernel's schedule on CPU threads, and its times say nothing "
               "about a GPU"
             : "times on a CPU say nothing about a GPU";
}

bool takes_late_ids(const EngineReport& e) {
  return std::all_of(e.samples.begin(), e.samples.end(),
                     [](const Sample& s) { return s.late_id.has_value(); });
}

const ComparisonReport* headline_ratio(const CaseReport& c, const EngineReport& e) {
  if (e.role == "baseline") return nullptr;
  std::optional<double> fastest;
  const ComparisonReport* headline = nullptr;
  for (const ComparisonReport& ratio : c.comparisons) {
    const auto baseline =
        std::find_if(c.engines.begin(), c.engines.end(),
                     [&](const EngineReport& b) { return b.name == ratio.baseline; });
    if (ratio.candidate != e.name || baseline == c.engines.end() || baseline->role != "baseline")
      continue;
    const auto& time = baseline->ms_per_tok;
    if (headline == nullptr || (time && time->mean < fastest.value_or(time->mean + 1))) {
      headline = &ratio;
      if (time) fastest = time->mean;
    }
  }
  return headline;
}

}  // namespace mkbench
