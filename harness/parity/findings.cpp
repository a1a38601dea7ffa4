#include "harness/parity/findings.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace mkbench {
namespace {

// From the cause to its effects.
int depth_of_cause(Verdict v) {
  constexpr std::array<Verdict, 5> kOrder = {Verdict::kIntegrity, Verdict::kFailSelf,
                                             Verdict::kFailToken, Verdict::kFailFidelity,
                                             Verdict::kNondeterministic};
  return static_cast<int>(std::find(kOrder.begin(), kOrder.end(), v) - kOrder.begin());
}

}  // namespace

std::string_view step_verdict_name(StepVerdict v) {
  switch (v) {
    case StepVerdict::kExact:
      return "EXACT";
    case StepVerdict::kTie:
      return "TIE";
    case StepVerdict::kDrift:
      return "DRIFT";
    case StepVerdict::kWrong:
      return "WRONG";
  }
  return "WRONG";
}

const CheckResult* find_check(const ParityReport& report, Check check) {
  const auto found = std::find_if(report.checks.begin(), report.checks.end(),
                                  [check](const CheckResult& c) { return c.check == check; });
  return found == report.checks.end() ? nullptr : &*found;
}

void Findings::conclude(ParityReport& report) const {
  if (list_.empty()) return;
  std::vector<Finding> sorted = list_;
  const auto rank = [&report](const Finding& f) {
    const bool is_nan = f.verdict == Verdict::kFailFidelity && report.non_finite > 0;
    return is_nan ? 0 : 1 + depth_of_cause(f.verdict);
  };
  std::stable_sort(sorted.begin(), sorted.end(),
                   [&](const Finding& a, const Finding& b) { return rank(a) < rank(b); });
  report.verdict = sorted.front().verdict;
  report.reason.clear();
  for (const Finding& f : sorted) {
    if (!report.reason.empty()) report.reason += "; ";
    report.reason += f.reason;
  }
}

void start_prompt(Engine& engine, const ReferencePrompt& prompt) {
  engine.reset();
  engine.poison();
  engine.prefill(prompt.ids);
}

std::vector<int32_t> checked_decode(Engine& engine, int n, const int32_t* forced, float* logits,
                                    const std::string& prompt, Findings& findings) {
  const int64_t before = engine.launch_count();
  std::vector<int32_t> ids = engine.decode(n, forced, logits);
  const int64_t launches = engine.launch_count() - before;
  if (launches <= 0) {
    findings.add(Verdict::kIntegrity,
                 fmt::format("prompt '{}': {} tokens came back but the launch counter did not move",
                             prompt, ids.size()));
  } else if (engine.capabilities().one_launch && launches != 1) {
    findings.add(
        Verdict::kIntegrity,
        fmt::format("prompt '{}': decode({}) took {} launches, wanted 1", prompt, n, launches));
  }
  if (ids.size() != static_cast<size_t>(n)) {
    findings.add(Verdict::kFailToken,
                 fmt::format("prompt '{}': decode({}) returned {} ids", prompt, n, ids.size()));
    ids.resize(static_cast<size_t>(n), -1);
  }
  return ids;
}

double bf16_step(double x) {
  // 8 significant bits: the spacing at 2^e is 2^(e - 7).
  return x > 0 ? std::ldexp(1.0, std::ilogb(x) - 7) : 0;
}

bool within_tau(const ReferenceStep& step, int32_t id, double tau) {
  for (size_t i = 0; i < step.top_ids.size(); ++i) {
    if (step.top_ids[i] != id) continue;
    return double{step.top_logits[0]} - double{step.top_logits[i]} <= tau;
  }
  return false;
}

ParityRow make_row(const ReferencePrompt& prompt, int step, int32_t engine_id,
                   const ParityOptions& options) {
  const ReferenceStep& expected = prompt.steps[static_cast<size_t>(step)];
  const auto text_of = [&](int32_t id) {
    if (id < 0) return std::string();
    if (id == expected.token && static_cast<size_t>(step) < prompt.token_texts.size()) {
      return prompt.token_texts[static_cast<size_t>(step)];
    }
    return options.text_of ? options.text_of(id) : std::string();
  };
  ParityRow row;
  row.prompt = prompt.name;
  row.set = prompt.set;
  row.position = expected.position;
  row.reference_id = expected.token;
  row.engine_id = engine_id;
  row.reference_text = text_of(expected.token);
  row.engine_text = text_of(engine_id);
  row.margin = expected.margin;
  return row;
}

std::string describe_row(const ParityRow& row) {
  const auto quoted = [](const std::string& text) {
    return text.empty() ? std::string() : fmt::format(" ('{}')", text);
  };
  return fmt::format("prompt '{}' position {}: found {}{}, wanted {}{}", row.prompt, row.position,
                     row.engine_id, quoted(row.engine_text), row.reference_id,
                     quoted(row.reference_text));
}

void tally_rows(ParityReport& report) {
  report.exact = report.ties = report.drifts = report.wrong = 0;
  report.first_divergence.reset();
  for (size_t i = 0; i < report.rows.size(); ++i) {
    const ParityRow& row = report.rows[i];
    if (row.verdict == StepVerdict::kExact) ++report.exact;
    if (row.verdict == StepVerdict::kTie) ++report.ties;
    if (row.verdict == StepVerdict::kDrift) ++report.drifts;
    if (row.verdict == StepVerdict::kWrong) ++report.wrong;
    const bool differs = row.engine_id != row.reference_id || row.verdict == StepVerdict::kWrong;
    if (differs && !report.first_divergence) report.first_divergence = static_cast<int>(i);
  }
}

}  // namespace mkbench
