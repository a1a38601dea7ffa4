#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "harness/engines/plugin_file.h"
#include "harness/flow/text.h"
#include "harness/flow/timed_truth.h"
#include "harness/judge/findings.h"
#include "harness/measure/statistics.h"
#include "harness/parent/recompute.h"
#include "references/base/sha256.h"
#include "references/model_row.h"

namespace mkbench {
namespace {

using nlohmann::json;

std::string item(const std::string& path, const char* list, size_t i) {
  return fmt::format("{}.{}[{}]", path, list, i);
}

// The job of a timed case, as far as its name and its prompt depend on it.
CaseJob job_of(const CaseReport& c, const Options& options, const json& meta) {
  CaseJob job;
  job.model = c.model;
  job.depth = c.depth;
  job.n_gen = c.n_gen;
  job.n_prompt = c.n_prompt;
  job.ids = options.ids;
  if (meta.is_object() && meta.value("prompt_seed", json()).is_number_unsigned())
    job.prompt_seed = meta["prompt_seed"].get<uint64_t>();
  return job;
}

// One sample by itself.
void recheck_sample(const CaseReport& c, const EngineReport& e, const Sample& s,
                    const std::string& path, Differences& d) {
  d.holds(s.engine == e.samples.front().engine &&
              (is_file_engine(e.name) || s.engine == e.resolved_name),
          path + ".engine", s.engine, "the engine that holds the sample");
  d.holds(s.valid == s.invalid_reason.empty(), path + ".valid", s.valid,
          s.valid ? "false: invalid_reason says why" : "true: there is no invalid_reason");
  d.holds(!s.valid || s.receipts_wrong == 0, path + ".receipts_wrong", s.receipts_wrong,
          "0: the sample is valid");
  if (!s.valid) return;
  const bool prefill = c.n_prompt > 0;
  const int tokens = prefill ? c.n_prompt : c.n_gen;
  const size_t ids = static_cast<size_t>(prefill ? kPrefillCheckTokens : c.n_gen);
  d.same(path + ".tokens", s.tokens, tokens);
  d.holds(s.ids.size() == ids, path + ".ids", s.ids.size(), fmt::format("{} ids", ids));
  const int checked = static_cast<int>(ids);
  d.holds(s.receipts_checked == checked || (prefill && s.receipts_checked == checked + c.n_prompt),
          path + ".receipts_checked", s.receipts_checked, fmt::format("{}: one an id", checked));
  d.holds(prefill ? s.prefill_ms > 0 && s.prefill_ms <= s.times.host_ms : s.prefill_ms == 0,
          path + ".prefill_ms", s.prefill_ms,
          prefill ? "a time over 0 and within host_ms" : "0: not a prefill test");
}

// An engine has a clock in all of its samples or in none, and a clock inside the call shows no more
// than the clock around it, by what clock_disagreement() lets pass.
void recheck_clocks(const EngineReport& e, const std::string& path, Differences& d) {
  for (size_t i = 0; i < e.samples.size(); ++i) {
    const DecodeTimes& t = e.samples[i].times;
    const DecodeTimes& first = e.samples.front().times;
    const std::string at = item(path, "samples", i) + ".times";
    const std::tuple<const char*, double, double> kClocks[] = {
        {"event_ms", t.event_ms, first.event_ms}, {"device_ms", t.device_ms, first.device_ms}};
    for (const auto& [name, ms, first_ms] : kClocks) {
      const std::string clock = fmt::format("{}.{}", at, name);
      d.holds((ms > 0) == (first_ms > 0), clock, ms, "this clock in all samples or in none");
      d.holds(!e.samples[i].valid || ms <= (1 + kClockShare) * t.host_ms + kClockFloorMs, clock, ms,
              fmt::format("at most host_ms, {}", t.host_ms));
    }
    d.holds((t.sm_ghz > 0) == (first.sm_ghz > 0), at + ".sm_ghz", t.sm_ghz,
            "this clock in all samples or in none");
    d.holds(t.per_token_ms.size() == first.per_token_ms.size() ||
                t.per_token_ms.size() == static_cast<size_t>(e.samples[i].tokens),
            at + ".per_token_ms", t.per_token_ms.size(), "one time a token");
  }
}

struct PlacedSample {
  const Sample* sample;
  std::string path;
};

std::vector<PlacedSample> samples_of(const CaseReport& c, const std::string& path) {
  std::vector<PlacedSample> all;
  for (size_t k = 0; k < c.engines.size(); ++k) {
    const std::string engine = item(path, "engines", k);
    for (size_t i = 0; i < c.engines[k].samples.size(); ++i)
      all.push_back({&c.engines[k].samples[i], item(engine, "samples", i)});
  }
  std::sort(all.begin(), all.end(), [](const PlacedSample& a, const PlacedSample& b) {
    return std::pair(a.sample->block, a.sample->order) <
           std::pair(b.sample->block, b.sample->order);
  });
  return all;
}

// Samples follow each other in the order of blocks and places, and none begins before the one before
// it has ended. The first runs of a block have the block's late id.
void recheck_sequence(const std::vector<PlacedSample>& samples, Differences& d) {
  std::map<int, int32_t> late_ids;
  for (size_t i = 0; i < samples.size(); ++i) {
    const Sample& s = *samples[i].sample;
    if (i > 0) {
      const Sample& before = *samples[i - 1].sample;
      const double end = before.start_ms + before.times.host_ms;
      d.holds(s.start_ms >= end * (1 - 1e-9), samples[i].path + ".start_ms", s.start_ms,
              fmt::format("at least {}, where {} ends", end, samples[i - 1].path));
    }
    if (!s.late_id || s.repeats > 0) continue;
    const auto [known, is_new] = late_ids.try_emplace(s.block, *s.late_id);
    if (!is_new) d.same(samples[i].path + ".late_id", *s.late_id, known->second);
  }
}

// The place of each engine in each block. An engine that failed before its first sample has a place
// and no samples, so that each set of such engines is tried.
void recheck_order(const CaseReport& c, const std::string& path, const Options& options,
                   Differences& d) {
  std::vector<size_t> sampled, silent;
  int blocks = 0;
  for (size_t k = 0; k < c.engines.size(); ++k) {
    const EngineReport& e = c.engines[k];
    for (const Sample& s : e.samples) blocks = std::max(blocks, s.block + 1);
    if (!e.samples.empty()) sampled.push_back(k);
    if (e.samples.empty() && e.timed) silent.push_back(k);
  }
  constexpr size_t kMostSilent = 6;
  constexpr int kMostBlocks = 1 << 20;
  if (sampled.empty() || silent.size() > kMostSilent || blocks > kMostBlocks) return;
  const auto wrong_places = [&](size_t set) {
    std::vector<size_t> engines = sampled;
    for (size_t i = 0; i < silent.size(); ++i) {
      if ((set >> i & 1) != 0) engines.push_back(silent[i]);
    }
    std::sort(engines.begin(), engines.end());
    const std::vector<std::vector<int>> orders =
        block_orders(static_cast<int>(engines.size()), blocks, options.random_order, options.seed);
    std::vector<Difference> wrong;
    for (size_t place = 0; place < engines.size(); ++place) {
      const EngineReport& e = c.engines[engines[place]];
      for (size_t i = 0; i < e.samples.size(); ++i) {
        const Sample& s = e.samples[i];
        const std::vector<int>& order = orders[std::min(i, orders.size() - 1)];
        const auto wanted =
            std::find(order.begin(), order.end(), static_cast<int>(place)) - order.begin();
        if (s.order == wanted && s.block == static_cast<int>(i)) continue;
        wrong.push_back({item(item(path, "engines", engines[place]), "samples", i) + ".order",
                         fmt::format("place {} of block {}", s.order, s.block),
                         fmt::format("place {} of block {}, from --order and --seed", wanted, i)});
      }
    }
    return wrong;
  };
  const std::vector<Difference> first = wrong_places(0);
  bool explained = first.empty();
  for (size_t set = 1; !explained && set < (size_t{1} << silent.size()); ++set)
    explained = wrong_places(set).empty();
  for (const EngineReport& e : c.engines) d.count(std::ssize(e.samples));
  if (explained) return;
  for (const Difference& one : first) d.holds(false, one.path, one.found, one.recomputed);
}

// The timed prompt follows from its seed, and on analytic weights the ids that must come after it.
void recheck_prompt(const CaseReport& c, const std::string& path, const CaseJob& job,
                    const ModelShape& shape, const std::vector<PlacedSample>& samples,
                    Differences& d) {
  ModelWeights weights;
  weights.lagset = c.lagset;
  weights.config.shape = shape;
  const TimedTruth truth = find_timed_truth(job, weights);
  d.same(path + ".ids_sha256", c.ids_sha256,
         sha256_hex(truth.prompt.data(), truth.prompt.size() * sizeof(int32_t)));
  d.same(path + ".reference.timed_check", c.timed_check, truth.check());
  const auto first = std::min_element(
      samples.begin(), samples.end(),
      [](const auto& a, const auto& b) { return a.sample->start_ms < b.sample->start_ms; });
  if (first->sample->repeats == 0 && first->sample->valid)
    d.same(path + ".generated_text", c.generated_text, sequence_text(shape, first->sample->ids));
  for (const PlacedSample& one : samples) {
    const Sample& s = *one.sample;
    if (!s.late_id || !s.valid) continue;
    const bool known =
        std::find(truth.late_ids.begin(), truth.late_ids.end(), *s.late_id) != truth.late_ids.end();
    d.holds(known, one.path + ".late_id", *s.late_id, "an id from which late ids are drawn");
    if (!known) continue;
    const auto expected = truth.expected(*s.late_id, static_cast<int>(s.ids.size()));
    if (expected) d.same(one.path + ".ids", s.ids, *expected);
  }
}

const CheckResult* applied(const ParityReport& p, Check check) {
  const CheckResult* result = find_check(p, check);
  return result != nullptr && result->status != CheckStatus::kNotApplicable ? result : nullptr;
}

std::string check_path(const ParityReport& p, const std::string& path, Check check) {
  return item(path, "checks", static_cast<size_t>(find_check(p, check) - p.checks.data()));
}

// Checks that are numbers: limit of the class, and failed where the value is above the limit.
void recheck_limits(const ParityReport& p, const std::string& path, Differences& d) {
  std::optional<RatioLimits> limits;
  for (const PrecisionClass one :
       {PrecisionClass::kBf16, PrecisionClass::kFp32Accumulate, PrecisionClass::kLossy}) {
    if (precision_class_name(one) == p.precision) limits = limits_of(one);
  }
  if (!p.precision.empty()) {
    d.holds(limits.has_value(), path + ".precision", p.precision, "bf16, fp32-accumulate or lossy");
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
  // Reports of several references are joined, and not each of them has a ratchet.
  const CheckResult* ratchet = applied(p, Check::kRatchet);
  if (ratchet == nullptr || !ratchet->value || p.reference.find(", ") != std::string::npos) return;
  const std::string at = check_path(p, path, Check::kRatchet);
  d.same(at + ".value", *ratchet->value, *rms->value);
  if (ratchet->limit) {
    d.same(at + ".status", enum_text(ratchet->status),
           enum_text(*ratchet->value <= *ratchet->limit ? CheckStatus::kPassed
                                                        : CheckStatus::kFailed));
  }
}

// A check that does not apply says why and has no limit; a ratio that passed has one.
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

// Counts of an engine that passed against a reference with logits, from the rows of the table.
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
          p.decided_steps, fmt::format("{} to {}: strict steps, and all steps", strict, p.steps));
  d.same(path + ".self_inconsistent", p.self_inconsistent, 0);
  d.same(path + ".non_finite", p.non_finite, 0);
  const CheckResult* cap = applied(p, Check::kFlips);
  if (cap == nullptr || p.reference.find(", ") != std::string::npos) return;
  const std::string at = check_path(p, path, Check::kFlips);
  if (cap->value) d.same(at + ".value", *cap->value, p.flips);
  if (cap->limit) d.same(at + ".limit", *cap->limit, p.flips_allowed);
}

}  // namespace

void recheck_samples(const CaseReport& c, const std::string& path, const Options& options,
                     const json& meta, Differences& differences) {
  const std::vector<PlacedSample> samples = samples_of(c, path);
  const CaseJob job = job_of(c, options, meta);
  if (c.n_gen > 0 || c.n_prompt > 0) differences.same(path + ".name", c.name, case_name(job));
  for (size_t k = 0; k < c.engines.size(); ++k) {
    const EngineReport& e = c.engines[k];
    const std::string engine = item(path, "engines", k);
    differences.holds(e.role == "baseline" || e.role == "candidate", engine + ".role", e.role,
                      "baseline or candidate");
    for (size_t i = 0; i < e.samples.size(); ++i)
      recheck_sample(c, e, e.samples[i], item(engine, "samples", i), differences);
    recheck_clocks(e, engine, differences);
  }
  if (samples.empty()) return;
  recheck_sequence(samples, differences);
  recheck_order(c, path, options, differences);
  const ModelRow* row = find_model(c.model);
  if (row != nullptr && meta.is_object() && meta.contains("prompt_seed"))
    recheck_prompt(c, path, job, row->shape, samples, differences);
}

void recheck_parity(const CaseReport& c, const EngineReport& e, const std::string& path,
                    Differences& differences) {
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
                    "PASS: no reason is told");
  differences.holds(passed || !times_allowed(e.verdict), path + ".verdict", enum_text(e.verdict),
                    "no pass: parity has not passed");
  if (!passed && p.verdict != Verdict::kIncomplete) {
    // A judge that fails its own gate makes the reference invalid; an interrupt may come between the
    // two verdicts.
    const bool is_judge = e.role == "baseline" && e.verdict == Verdict::kInvalidReference;
    const bool stopped = e.verdict == Verdict::kSkipped || e.verdict == Verdict::kNotJudged;
    differences.holds(is_judge || stopped || e.verdict == p.verdict, at + ".verdict",
                      enum_text(p.verdict), std::string(enum_text(e.verdict)) + ", the engine's");
  }
  if (times_allowed(e.verdict) && p.judged_in.empty()) {
    differences.same(
        path + ".verdict", enum_text(e.verdict),
        enum_text(c.reference.starts_with("live") ? Verdict::kPassLive : Verdict::kPass));
  }
  differences.holds(p.verdict != Verdict::kPassLive, at + ".verdict", enum_text(p.verdict),
                    "PASS: live is said of the engine");
  recheck_statuses(p, at, differences);
  recheck_limits(p, at, differences);
  // References of published ids have no margins, and so no flip cap.
  if (passed && times_allowed(e.verdict) && p.judged_in.empty() && p.flips_allowed > 0)
    recheck_counts(p, at, differences);
}

}  // namespace mkbench
