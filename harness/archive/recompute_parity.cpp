#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "harness/archive/recompute.h"
#include "harness/flow/events.h"
#include "harness/judge/findings.h"

namespace mkbench {
namespace {

using nlohmann::json;

const CheckResult* applied(const ParityReport& p, Check check) {
  const CheckResult* result = find_check(p, check);
  return result != nullptr && result->status != CheckStatus::kNotApplicable ? result : nullptr;
}

std::string check_path(const ParityReport& p, const std::string& path, Check check) {
  return item(path, "checks", static_cast<size_t>(find_check(p, check) - p.checks.data()));
}

// A ratio's limit is that of the precision class; the check has failed exactly if it is exceeded.
void recheck_limits(const ParityReport& p, const std::string& path, int schema_minor,
                    Differences& d) {
  std::optional<RatioLimits> limits;
  for (const PrecisionClass one : kPrecisionClasses) {
    if (precision_class_name(one) == p.precision) limits = limits_of(one, schema_minor);
  }
  if (!p.precision.empty()) {
    d.holds(limits.has_value(), path + ".precision", p.precision,
            "bf16, fp32-accumulate, fp16 or lossy");
  }
  const std::pair<Check, double RatioLimits::*> kOfClass[] = {{Check::kRms, &RatioLimits::rms},
                                                              {Check::kStep, &RatioLimits::step},
                                                              {Check::kInf, &RatioLimits::inf},
                                                              {Check::kKl, &RatioLimits::kl}};
  for (const auto& [check, limit] : kOfClass) {
    const CheckResult* result = applied(p, check);
    if (result == nullptr || !result->limit || !result->value) continue;
    const std::string at = check_path(p, path, check);
    if (limits) d.same(at + ".limit", *result->limit, (*limits).*limit);
    d.same(
        at + ".status", enum_text(result->status),
        enum_text(*result->value <= *result->limit ? CheckStatus::kPassed : CheckStatus::kFailed));
  }
  const CheckResult* rms = find_check(p, Check::kRms);
  if (rms == nullptr || !rms->value) return;
  d.same(path + ".r_rms", json(p.r_rms.value_or(-1)), *rms->value);
  if (rms->limit) d.same(path + ".r_rms_limit", p.r_rms_limit, *rms->limit);
  // A report joined from several references may have a ratchet for only some of them.
  const CheckResult* ratchet = applied(p, Check::kRatchet);
  if (ratchet == nullptr || !ratchet->value || p.reference.find(", ") != std::string::npos) return;
  const std::string at = check_path(p, path, Check::kRatchet);
  d.same(at + ".value", *ratchet->value, *rms->value);
  // Any of four ratios can fail the ratchet, but the report holds only the committed R_rms.
  if (ratchet->limit && *ratchet->value > *ratchet->limit)
    d.same(at + ".status", enum_text(ratchet->status), enum_text(CheckStatus::kFailed));
  const bool told = ratchet->detail.find("R_") != std::string::npos;
  d.holds(ratchet->status != CheckStatus::kFailed || told, at + ".status",
          enum_text(ratchet->status), "passed: no detail names a ratio over its committed value");
}

// Checks that do not apply have a reason and no limit, failed ones a reason, applied ratios limits.
void recheck_statuses(const ParityReport& p, const std::string& path, Differences& d) {
  for (size_t i = 0; i < p.checks.size(); ++i) {
    const CheckResult& r = p.checks[i];
    const bool applies = r.status != CheckStatus::kNotApplicable;
    const bool unfinished = p.verdict == Verdict::kIncomplete;
    const bool is_ratio = r.check >= Check::kRms && r.check <= Check::kRatchet;
    const std::string at = item(path, "checks", i) + ".status";
    d.holds(applies || unfinished || (!r.limit && !r.detail.empty()), at, enum_text(r.status),
            "passed or failed: there is a limit, or no reason");
    d.holds(r.status != CheckStatus::kFailed || !r.detail.empty(), at, enum_text(r.status),
            "passed: no detail says why it failed");
    d.holds(!applies || !is_ratio || r.limit, at, enum_text(r.status),
            "not_applicable: there is no limit");
  }
}

// Recounts the parity table of an engine that passed against a reference with logits.
void recheck_counts(const ParityReport& p, const std::string& path, Differences& d) {
  int prompts = 0, strict = 0, flips = 0;
  for (size_t i = 0; i < p.rows.size(); ++i) {
    const ParityRow& row = p.rows[i];
    const bool follows =
        i > 0 && p.rows[i - 1].prompt == row.prompt && p.rows[i - 1].position + 1 == row.position;
    prompts += follows ? 0 : 1;
    strict += row.set == "strict" ? 1 : 0;
    flips += row.engine_id != row.reference_id ? 1 : 0;
    const std::string at = item(path, "rows", i);
    const bool equal = row.engine_id == row.reference_id;
    d.holds(equal == (row.verdict == StepVerdict::kExact), at + ".match", enum_text(row.verdict),
            equal ? "EXACT: the ids are equal" : "not EXACT: the ids differ");
    d.holds(!equal || row.engine_text == row.reference_text, at + ".mk_text", row.engine_text,
            "the text of ref_id");
    d.holds(row.set == "strict" || row.set == "near-tie" || row.set == "closed-form", at + ".set",
            row.set, "strict, near-tie or closed-form");
    d.holds(row.margin >= 0, at + ".margin", row.margin, "at least 0");
  }
  d.same(path + ".prompts", p.prompts, prompts);
  d.same(path + ".strict_steps", p.strict_steps, strict);
  d.same(path + ".strict_matched", p.strict_matched, strict);
  d.same(path + ".flips", p.flips, flips);
  d.holds(p.decided_steps >= strict && p.decided_steps <= p.steps, path + ".decided_steps",
          p.decided_steps,
          fmt::format("{} to {}: at least the strict steps, at most all", strict, p.steps));
  d.same(path + ".self_inconsistent", p.self_inconsistent, 0);
  d.same(path + ".non_finite", p.non_finite, 0);
  const CheckResult* cap = applied(p, Check::kFlips);
  if (cap == nullptr || p.reference.find(", ") != std::string::npos) return;
  const std::string at = check_path(p, path, Check::kFlips);
  if (cap->value) d.same(at + ".value", *cap->value, p.flips);
  if (cap->limit) d.same(at + ".limit", *cap->limit, p.flips_allowed);
}

}  // namespace

void recheck_parity(const CaseReport& c, const EngineReport& e, const std::string& path,
                    int schema_minor, Differences& differences) {
  if (!e.parity) return;
  const ParityReport& p = *e.parity;
  const std::string at = path + ".parity";
  const auto failed = std::count_if(p.checks.begin(), p.checks.end(), [](const CheckResult& r) {
    return r.status == CheckStatus::kFailed;
  });
  const bool passed = times_allowed(p.verdict);
  differences.holds(!(passed && failed > 0), at + ".verdict", enum_text(p.verdict),
                    "a failure: a check has failed");
  differences.holds(passed || failed > 0 || p.verdict == Verdict::kIncomplete, at + ".verdict",
                    enum_text(p.verdict), "PASS: no check has failed");
  differences.holds(p.verdict != Verdict::kIncomplete || failed == 0, at + ".verdict",
                    enum_text(p.verdict), "a failure: a check has failed");
  differences.holds(passed || !p.reason.empty(), at + ".verdict", enum_text(p.verdict),
                    "PASS: there is no reason");
  differences.holds(passed || !times_allowed(e.verdict), path + ".verdict", enum_text(e.verdict),
                    "no pass: parity has not passed");
  if (!passed && p.verdict != Verdict::kIncomplete) {
    // A judge that fails its own gate makes the reference invalid; an interrupt may come after the
    // parity verdict and before the engine's.
    const bool is_judge = e.role == "baseline" && e.verdict == Verdict::kInvalidReference;
    const bool stopped = e.verdict == Verdict::kSkipped || e.verdict == Verdict::kNotJudged;
    differences.holds(is_judge || stopped || e.verdict == p.verdict, at + ".verdict",
                      enum_text(p.verdict), std::string(enum_text(e.verdict)) + ", the engine's");
  }
  if (times_allowed(e.verdict)) {
    differences.same(
        path + ".verdict", enum_text(e.verdict),
        enum_text(is_live_reference(c.reference) ? Verdict::kPassLive : Verdict::kPass));
  }
  differences.holds(p.verdict != Verdict::kPassLive, at + ".verdict", enum_text(p.verdict),
                    "PASS: only an engine's verdict is PASS_LIVE");
  recheck_statuses(p, at, differences);
  recheck_limits(p, at, schema_minor, differences);
  // A reference of published ids alone has no margins, so the check kFlips does not apply.
  const bool capped = p.flips_allowed > 0 || applied(p, Check::kFlips) != nullptr;
  if (passed && times_allowed(e.verdict) && p.judged_in.empty() && capped)
    recheck_counts(p, at, differences);
}

}  // namespace mkbench
