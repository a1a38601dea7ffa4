#include "harness/judge/conclude.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "harness/judge/card_figures.h"
#include "harness/judge/comparisons.h"
#include "harness/judge/observed.h"
#include "harness/judge/share.h"
#include "harness/report/readings.h"
#include "harness/report/render.h"

namespace mkbench {
namespace {

// An ablation explains the full time if it takes at least the full time less this share.
constexpr double kBindingBand = 0.05;

// value() of every sample; values that are 0 or not finite are left out.
std::vector<double> collect(const EngineReport& e,
                            const std::function<double(const Sample&)>& value) {
  std::vector<double> values;
  for (const Sample& s : e.samples) {
    const double v = value(s);
    if (v > 0 && std::isfinite(v)) values.push_back(v);
  }
  return values;
}

Number median_or(const std::vector<double>& values, const char* reason) {
  if (values.empty()) return {std::nullopt, reason};
  return {summarize(values, 0.95).median, {}};
}

Number percentile_or(const std::vector<double>& values, double p) {
  if (values.empty()) return {std::nullopt, "engine takes no per-token times"};
  if (const auto v = percentile(values, p)) return {*v, {}};
  return {std::nullopt, fmt::format("p{:.0f} needs more than {} tokens", p, values.size())};
}

bool is_unscored(const EngineReport& e) {
  return std::any_of(e.samples.begin(), e.samples.end(),
                     [](const Sample& s) { return s.invalid_reason == kUnscored; });
}

void fail(EngineReport& e, Verdict verdict, std::string reason) {
  e.verdict = worst({e.verdict, verdict});
  if (std::find(e.reasons.begin(), e.reasons.end(), reason) == e.reasons.end()) {
    e.reasons.push_back(std::move(reason));
  }
}

// Fails an engine whose samples contradict a verdict that parity alone would allow: a wrong
// receipt, an invalid sample, or too few receipts. A decode has a receipt for every token; a
// prefill test has receipts for the few untimed tokens that it decodes afterwards.
void check_samples(EngineReport& e, bool is_prefill) {
  e.receipts_checked = e.receipts_wrong = 0;
  for (const Sample& s : e.samples) {
    e.receipts_checked += s.receipts_checked;
    e.receipts_wrong += s.receipts_wrong;
  }
  if (!times_allowed(e.verdict) || is_unscored(e)) return;
  for (const Sample& s : e.samples) {
    if (s.receipts_wrong > 0) {
      fail(e, Verdict::kFailToken,
           fmt::format("timed tokens of block {}: {} of {} wrong{}{}", s.block, s.receipts_wrong,
                       s.receipts_checked, s.invalid_reason.empty() ? "" : ", ", s.invalid_reason));
      return;
    }
  }
  for (const Sample& s : e.samples) {
    if (!s.valid) {
      fail(e, Verdict::kIntegrity,
           fmt::format("sample of block {} is invalid: {}", s.block,
                       s.invalid_reason.empty() ? "no reason recorded" : s.invalid_reason));
      return;
    }
    if (!(s.ms_per_token() > 0)) {
      fail(e, Verdict::kIntegrity,
           fmt::format("sample of block {} has no time: {} ms for {} tokens", s.block,
                       s.times.host_ms, s.tokens));
      return;
    }
    const int wanted = is_prefill ? 1 : std::max(1, s.tokens);
    if (s.receipts_checked < wanted) {
      fail(e, Verdict::kIntegrity,
           fmt::format("receipts of block {}: {} of {} were checked", s.block, s.receipts_checked,
                       wanted));
      return;
    }
  }
  if (!e.clock_overhead) return;
  const std::string clocks = lasting_disagreement(e.samples, *e.clock_overhead);
  if (!clocks.empty()) fail(e, Verdict::kIntegrity, clocks);
}

void withhold(EngineReport& e, const std::string& reason) {
  e.times_withheld = reason;
  e.ms_per_tok.reset();
  for (Number* n :
       {&e.tok_per_s, &e.tok_per_s_ci_low, &e.tok_per_s_ci_high, &e.itl_p50_ms, &e.itl_p90_ms,
        &e.itl_p99_ms, &e.host_ms, &e.gpu_ms, &e.prefill_ms, &e.ttft_ms, &e.first_token_ms,
        &e.sm_ghz, &e.share, &e.card.energy_j, &e.card.watching_costs}) {
    *n = {std::nullopt, reason};
  }
  e.share_ci.reset();
  e.share_note.clear();
  e.card.watching_costs_ci.reset();
}

void fill_times(EngineReport& e, double confidence) {
  e.times_withheld.clear();
  std::vector<double> host_ms, per_token;
  for (const Sample& s : e.samples) {
    host_ms.push_back(s.times.host_ms);
    per_token.insert(per_token.end(), s.times.per_token_ms.begin(), s.times.per_token_ms.end());
  }
  e.ms_per_tok = summarize_processes(times_by_process(e.samples), confidence);
  e.tok_per_s = {1000 / e.ms_per_tok->mean, {}};
  const bool has_interval = e.ms_per_tok->ci && e.ms_per_tok->ci->low > 0;
  e.tok_per_s_ci_low =
      e.tok_per_s_ci_high = {std::nullopt, "needs 2 processes or blocks, or less noise"};
  if (has_interval) {
    e.tok_per_s_ci_low = {1000 / e.ms_per_tok->ci->high, {}};
    e.tok_per_s_ci_high = {1000 / e.ms_per_tok->ci->low, {}};
  }
  e.itl_p50_ms = percentile_or(per_token, 50);
  e.itl_p90_ms = percentile_or(per_token, 90);
  e.itl_p99_ms = percentile_or(per_token, 99);
  e.host_ms = median_or(host_ms, "no samples");
  const std::vector<double> prefill_ms = collect(e, [](const Sample& s) { return s.prefill_ms; });
  constexpr char kNoPrefill[] = "not a prefill test";
  e.prefill_ms = median_or(prefill_ms, kNoPrefill);
  e.ttft_ms = prefill_ms.empty() ? Number{std::nullopt, kNoPrefill} : e.host_ms;
  e.gpu_ms = median_or(collect(e, [](const Sample& s) { return s.times.event_ms; }),
                       "engine takes no CUDA events");
  e.first_token_ms = median_or(collect(e,
                                       [](const Sample& s) {
                                         const auto& t = s.times.per_token_ms;
                                         return t.empty() ? 0.0 : t.front();
                                       }),
                               "engine takes no per-token times");
  e.sm_ghz = median_or(collect(e, [](const Sample& s) { return s.times.sm_ghz; }),
                       "engine does not read the SM clock");
}

// Withholds times that are shorter than the memory allows.
void check_memory_bound(EngineReport& e, const MemoryBound& bound) {
  const std::string reason = impossible_reason(e, bound);
  if (reason.empty()) return;
  fail(e, Verdict::kImpossible, reason);
  withhold(e, reason);
}

// What limits the speed: memory if the time without waits is about the full time, the dependency
// chain if the time without loads is; "both" if both are or neither is.
std::string binding_term(double full, double no_waits, double no_loads) {
  const bool memory = no_waits >= (1 - kBindingBand) * full;
  const bool chain = no_loads >= (1 - kBindingBand) * full;
  return memory == chain ? "both" : memory ? "memory" : "chain";
}

void fill_profile(EngineReport& e, const CeilingReport& ceiling) {
  if (!e.profile) return;
  ProfileReport& p = *e.profile;
  p.binds.clear();
  p.no_waits_us = median_or(p.no_waits_runs_us, "no runs");
  p.no_loads_us = median_or(p.no_loads_runs_us, "no runs");
  p.no_waits_fraction = {std::nullopt, ceiling.reason};
  if (!e.ms_per_tok) {
    p.full_us = p.no_waits_us = p.no_loads_us = {std::nullopt, e.times_withheld};
    return;
  }
  p.full_us = {1000 * e.ms_per_tok->median, {}};
  if (ceiling.ms_per_tok && p.no_waits_us.value) {
    p.no_waits_fraction = {1000 * ceiling.ms_per_tok->median / *p.no_waits_us.value, {}};
  }
  if (p.no_waits_us.value && p.no_loads_us.value)
    p.binds = binding_term(*p.full_us.value, *p.no_waits_us.value, *p.no_loads_us.value);
}

void aggregate_engine(CaseReport& c, EngineReport& e, double confidence, uint64_t seed) {
  check_samples(e, c.n_prompt > 0);
  count_dropped(e);
  if (times_allowed(e.verdict) && !e.timed) {
    withhold(e, "not timed: it judged parity only (--compare none)");
  } else if (!times_allowed(e.verdict)) {
    const std::string why = e.reasons.empty() ? std::string() : ": " + e.reasons.front();
    withhold(e, std::string(verdict_name(e.verdict)) + why);
  } else if (e.samples.empty()) {
    withhold(e, e.reasons.empty() ? "no samples were taken" : e.reasons.front());
  } else if (is_unscored(e)) {
    withhold(e, kUnscored);
  } else {
    fill_times(e, confidence);
    fill_energy(e);
    fill_watching_costs(e, confidence);
    fill_share(c.ceiling, e, confidence, seed);
    check_memory_bound(e, c.memory);
  }
  fill_observed(e);
  fill_profile(e, c.ceiling);
}

// The worst of the engines' verdicts and of the case's own, which is set if the case failed before
// any engine ran. Skipped engines count only if no candidate ran: the case is then SKIPPED.
Verdict verdict_of_case(const CaseReport& c) {
  std::vector<Verdict> verdicts = {c.verdict};
  bool any_candidate = false, any_ran = false;
  for (const EngineReport& e : c.engines) {
    verdicts.push_back(e.verdict);
    if (e.role != "candidate") continue;
    any_candidate = true;
    any_ran = any_ran || e.verdict != Verdict::kSkipped;
  }
  const Verdict result = worst(verdicts);
  return times_allowed(result) && any_candidate && !any_ran ? Verdict::kSkipped : result;
}

void add_once(std::vector<std::string>& reasons, std::string reason) {
  if (std::find(reasons.begin(), reasons.end(), reason) == reasons.end()) {
    reasons.push_back(std::move(reason));
  }
}

void conclude_case(CaseReport& c) {
  for (const bool skipped : {false, true}) {  // who was skipped, because of another
    for (const EngineReport& e : c.engines) {
      if (times_allowed(e.verdict) || (e.verdict == Verdict::kSkipped) != skipped) continue;
      add_once(c.reasons, case_reason(e, e.reasons.empty() ? "no reason recorded" : e.reasons[0]));
    }
  }
  if (c.format_cost && c.format_cost->limit > 0 && !(c.format_cost->kl <= c.format_cost->limit)) {
    c.verdict = worst({c.verdict, Verdict::kFailFidelity});
    add_once(c.reasons,
             fmt::format("the format costs a KL of {:.4g} a step, more than --max-kl {:g}",
                         c.format_cost->kl, c.format_cost->limit));
  }
  c.verdict = verdict_of_case(c);
}

}  // namespace

void aggregate(CaseReport& c, double confidence, uint64_t seed, bool random_order,
               const SpeedMargin& margin) {
  fill_ceiling(c, confidence);
  for (EngineReport& e : c.engines) aggregate_engine(c, e, confidence, seed);
  c.comparisons = compare_engines(c, confidence, seed, random_order, margin);
}

void conclude(Report& report) {
  std::vector<Verdict> verdicts;
  if (exit_code(report.verdict) != 0) verdicts.push_back(report.verdict);
  for (CaseReport& c : report.cases) {
    conclude_case(c);
    verdicts.push_back(c.verdict);
    for (const std::string& reason : c.reasons) add_once(report.reasons, c.name + ": " + reason);
  }
  if (report.interrupted) {
    verdicts.push_back(Verdict::kInterrupted);
    add_once(report.reasons, "interrupted: the report is partial");
  }
  if (verdicts.empty()) {
    verdicts.push_back(Verdict::kRuntimeError);
    add_once(report.reasons, "no case was run");
  }
  report.verdict = worst(verdicts);
  report.exit_code = exit_code(report.verdict);
}

void conclude(SoakReport& r, bool interrupted) {
  std::vector<Verdict> verdicts;
  for (const SoakFailure& failure : r.failures) verdicts.push_back(failure.verdict);
  r.reason.clear();
  if (interrupted) {
    verdicts.push_back(Verdict::kInterrupted);
    r.reason = "Ctrl-C ended it";
  } else if (!verdicts.empty()) {
    const auto gravest = std::find_if(
        r.failures.begin(), r.failures.end(),
        [&](const SoakFailure& failure) { return failure.verdict == worst(verdicts); });
    r.reason = fmt::format("step {}: {}", gravest->step, gravest->reason);
  } else if (!r.one_step && !has_enough(r)) {
    verdicts.push_back(Verdict::kIncomplete);
    r.reason =
        fmt::format("{:g} minutes were over after {} of {}{} launches and {} of {} checked tokens",
                    r.asked_minutes, with_commas(launches_done(r)), with_commas(r.asked_launches),
                    r.compared ? " repeated" : "", with_commas(r.count(SoakCheck::kTokens).looked),
                    with_commas(r.asked_tokens));
  }
  r.verdict = worst(verdicts);
  r.exit_code = exit_code(r.verdict);
}

}  // namespace mkbench
