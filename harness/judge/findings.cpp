#include "harness/judge/findings.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>

namespace mkbench {
namespace {

// A check may fail on every step; the first few reasons are enough to find the cause.
constexpr int kMostReasons = 3;

// Place of a verdict in the order from causes to their effects. `repeats`: runs of one input differ,
// which explains wrong ids too; a difference between runs of two kinds does not.
int depth_of_cause(Verdict v, bool repeats) {
  constexpr std::array<Verdict, 6> kOrder = {Verdict::kIntegrity,        Verdict::kFailSelf,
                                             Verdict::kFailToken,        Verdict::kFailFidelity,
                                             Verdict::kNondeterministic, Verdict::kRuntimeError};
  if (repeats && v == Verdict::kNondeterministic) return 1;
  return 2 * static_cast<int>(std::find(kOrder.begin(), kOrder.end(), v) - kOrder.begin());
}

}  // namespace

CheckResult& Findings::result_of(Check check) {
  const auto found = std::find_if(results_.begin(), results_.end(),
                                  [check](const CheckResult& r) { return r.check == check; });
  if (found != results_.end()) {
    if (found->status == CheckStatus::kNotApplicable) *found = {.check = check};
    return *found;
  }
  results_.push_back({.check = check});
  return results_.back();
}

void Findings::measured(Check check, double value, std::optional<double> limit) {
  CheckResult& result = result_of(check);
  if (!result.value || !(value <= *result.value)) result.value = value;
  result.limit = limit;
}

void Findings::note(Check check, std::string detail) {
  result_of(check).detail = std::move(detail);
}

void Findings::rule_out(Check check, std::string why, std::optional<double> value) {
  const bool has = std::any_of(results_.begin(), results_.end(),
                               [check](const CheckResult& r) { return r.check == check; });
  if (has) return;
  results_.push_back({.check = check,
                      .status = CheckStatus::kNotApplicable,
                      .value = value,
                      .detail = std::move(why)});
}

void Findings::unfinished(Check check, std::string reached) {
  CheckResult& result = result_of(check);
  if (result.status != CheckStatus::kFailed) {
    result.status = CheckStatus::kNotApplicable;
    result.detail = "not finished: " + reached;
  }
  failures_.push_back({check, Verdict::kIncomplete, std::move(reached)});
}

void Findings::fail(Check check, Verdict verdict, std::string reason) {
  result_of(check).status = CheckStatus::kFailed;
  const auto known = std::count_if(failures_.begin(), failures_.end(),
                                   [check](const Failure& f) { return f.check == check; });
  if (known < kMostReasons) {
    failures_.push_back({check, verdict, std::move(reason)});
  } else {
    ++untold_[check];
  }
}

void Findings::conclude(ParityReport& report) const {
  const CheckResult* repeats = find_check(report, Check::kRepeats);
  const int known =
      depth_of_cause(report.verdict, repeats != nullptr && repeats->status == CheckStatus::kFailed);
  for (CheckResult result : results_) {
    if (result.status == CheckStatus::kFailed) {
      std::vector<std::string> reasons;
      for (const Failure& f : failures_) {
        if (f.check == result.check) reasons.push_back(f.reason);
      }
      if (const auto more = untold_.find(result.check); more != untold_.end()) {
        reasons.push_back(fmt::format("and {} more", more->second));
      }
      result.detail = fmt::format("{}", fmt::join(reasons, "; "));
    }
    merge_check(report.checks, result);
  }
  if (failures_.empty()) return;
  std::vector<Failure> sorted = failures_;
  const auto rank = [](const Failure& f) {
    return f.check == Check::kFinite ? -1 : depth_of_cause(f.verdict, f.check == Check::kRepeats);
  };
  std::stable_sort(sorted.begin(), sorted.end(),
                   [&](const Failure& a, const Failure& b) { return rank(a) < rank(b); });
  std::vector<std::string> reasons;
  for (const Failure& f : sorted) reasons.push_back(f.reason);
  const Verdict found = sorted.front().verdict;
  const bool first = report.reason.empty();
  const bool telling =
      first || depth_of_cause(found, sorted.front().check == Check::kRepeats) < known;
  if (telling) report.verdict = found;
  if (!first) reasons.insert(telling ? reasons.end() : reasons.begin(), report.reason);
  report.reason = fmt::format("{}", fmt::join(reasons, "; "));
}

void merge_check(std::vector<CheckResult>& checks, const CheckResult& result) {
  const auto place = std::lower_bound(
      checks.begin(), checks.end(), result,
      [](const CheckResult& a, const CheckResult& b) { return a.check < b.check; });
  if (place == checks.end() || place->check != result.check) {
    checks.insert(place, result);
    return;
  }
  const auto severity = [](CheckStatus s) {
    return s == CheckStatus::kFailed ? 2 : s == CheckStatus::kPassed ? 1 : 0;
  };
  CheckResult merged = severity(result.status) > severity(place->status) ? result : *place;
  if (result.status == place->status && result.detail != place->detail) {
    merged.detail = place->detail;
    if (!merged.detail.empty() && !result.detail.empty()) merged.detail += "; ";
    merged.detail += result.detail;
  }
  const std::optional<double>& a = place->value;
  const std::optional<double>& b = result.value;
  if (a && b) merged.value = *b <= *a ? a : b;
  if (!merged.value) merged.value = a ? a : b;
  if (!merged.limit) merged.limit = place->limit ? place->limit : result.limit;
  *place = std::move(merged);
}

void start_prompt(Engine& engine, const ReferencePrompt& prompt) {
  engine.reset();
  engine.poison();
  engine.prefill(prompt.ids);
}

std::vector<int32_t> checked_decode(Engine& engine, int n, const int32_t* forced, float* logits,
                                    const std::string& prompt, Findings& findings) {
  findings.ran(Check::kRan);
  const EngineCapabilities can = engine.capabilities();
  const int64_t before = engine.launch_count();
  std::vector<int32_t> ids = engine.decode(n, forced, logits);
  const int64_t launches = engine.launch_count() - before;
  if (!can.counted) {
    findings.note(Check::kRan, "judged by the returned ids: this engine counts no launches");
  } else if (launches <= 0) {
    findings.fail(
        Check::kRan, Verdict::kIntegrity,
        fmt::format("prompt '{}': {} tokens came back but the launch counter did not move", prompt,
                    ids.size()));
  } else if (can.one_launch && launches != 1) {
    findings.fail(
        Check::kRan, Verdict::kIntegrity,
        fmt::format("prompt '{}': decode({}) took {} launches, wanted 1", prompt, n, launches));
  }
  if (ids.size() != static_cast<size_t>(n)) {
    findings.fail(Check::kRan, Verdict::kFailToken,
                  fmt::format("prompt '{}': decode({}) returned {} ids", prompt, n, ids.size()));
    ids.resize(static_cast<size_t>(n), -1);
  }
  return ids;
}

std::vector<int32_t> forced_decode(Engine& engine, const ReferencePrompt& prompt, int first,
                                   int count, float* logits, int vocab, Findings& findings) {
  std::vector<int32_t> inputs(static_cast<size_t>(count), -1);
  for (int i = 0; i < count; ++i) {
    const int before = first + i - 1;
    inputs[static_cast<size_t>(i)] =
        before < 0 ? prompt.ids.back() : prompt.steps[static_cast<size_t>(before)].token;
  }
  if (engine.capabilities().forced) {
    if (first > 0) engine.set_pending(inputs[0]);
    return checked_decode(engine, count, inputs.data(), logits, prompt.name, findings);
  }
  std::vector<int32_t> ids, path = prompt.ids;
  for (int t = 0; t < first; ++t) path.push_back(prompt.steps[static_cast<size_t>(t)].token);
  for (int i = 0; i < count; ++i) {
    if (i > 0) path.push_back(inputs[static_cast<size_t>(i)]);
    engine.reset();
    engine.poison();
    engine.prefill(path);
    float* row = logits == nullptr ? nullptr : logits + int64_t{i} * vocab;
    ids.push_back(checked_decode(engine, 1, nullptr, row, prompt.name, findings)[0]);
  }
  return ids;
}

void forced_run(Engine& engine, const ReferencePrompt& prompt, int shown, int end, int vocab,
                Findings& findings, const TakeSteps& take) {
  start_prompt(engine, prompt);
  std::vector<float> logits;
  for (int first = 0; first < end;) {
    const bool behind = first >= shown;
    const int count = std::min(kMaxLogitSteps, (behind ? end : shown) - first);
    if (behind && engine.capabilities().logits) {
      logits.assign(static_cast<size_t>(count) * static_cast<size_t>(vocab),
                    std::numeric_limits<float>::quiet_NaN());
    }
    const std::vector<int32_t> ids = forced_decode(
        engine, prompt, first, count, logits.empty() ? nullptr : logits.data(), vocab, findings);
    take(first, ids, logits);
    first += count;
  }
}

bool within_tau(const ReferenceStep& step, int32_t id, double tau) {
  for (size_t i = 0; i < step.top_ids.size(); ++i) {
    if (step.top_ids[i] != id) continue;
    return double{step.top_logits[0]} - double{step.top_logits[i]} <= tau;
  }
  return false;
}

double tau_of(std::span<const float> truth_logits, double pairwise_d, bool logits_bf16) {
  double largest = 0;
  for (const float z : truth_logits) largest = std::max(largest, std::abs(double{z}));
  return pairwise_d + (logits_bf16 ? bf16_step(largest) : 0);
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
