#include "harness/flow/trials.h"

#include <fmt/format.h>

#include <algorithm>

#include "harness/flow/gate.h"
#include "harness/flow/interrupt.h"
#include "harness/flow/timed_truth.h"
#include "harness/judge/diagnosis.h"
#include "harness/judge/facts.h"
#include "harness/judge/head.h"
#include "harness/judge/isolation.h"
#include "harness/judge/repeats.h"
#include "harness/judge/replay.h"
#include "harness/report/render.h"
#include "references/base/error.h"
#include "references/model_row.h"
#include "references/synthetic.h"

namespace mkbench {
namespace {

// Number of cache lengths walked for lag sets whose closed form begins at a large depth.
constexpr int kFarSteppedLengths = 64;

// Whether a step alone can show the failure. Repeats and isolation take several runs.
bool one_step_shows(const ParityReport& report) {
  switch (report.verdict) {
    case Verdict::kFailFidelity:
    case Verdict::kFailToken:
    case Verdict::kFailSelf:
      return true;
    case Verdict::kNondeterministic:
      return report.suspect_is_free || report.wrong > 0;
    default:
      return false;
  }
}

// Whether a sequence may have seen rows of the sequence before it.
bool may_be_kept(const ParityReport& report) {
  return report.verdict == Verdict::kFailToken || report.verdict == Verdict::kFailFidelity ||
         report.verdict == Verdict::kNondeterministic;
}

}  // namespace

std::vector<ReferencePrompt> repeated_prompts(const CaseJob& job, const ModelShape& shape,
                                              const std::vector<GreedyReference>& references) {
  for (const GreedyReference& reference : references) {
    if (!reference.token_only) return prompts_to_repeat(reference.prompts);
  }
  std::vector<ReferencePrompt> prompts;
  for (const std::vector<int32_t>& ids : live_parity_prompts(job, shape, references)) {
    prompts.emplace_back();
    prompts.back().name = fmt::format("live {}", prompts.size());
    prompts.back().ids = ids;
  }
  return prompts_to_repeat(prompts);
}

void Trials::check_stop() const {
  if (services_.stop()) throw Interrupted{};
}

std::unique_ptr<Engine> Trials::make(const std::string& name, int context,
                                     const ModelWeights& weights) {
  check_stop();
  std::unique_ptr<Engine> engine;
  budget_.outside([&] {
    engine = services_.make_engine(
        {.name = name, .max_context = context, .fault = fault_of(job_, name)}, weights);
  });
  return engine;
}

void Trials::run(Engine& engine, const std::string& name,
                 const std::vector<GreedyReference>& references, const ParityOptions& options,
                 ParityReport& report) {
  const std::vector<ReferencePrompt> prompts =
      repeated_prompts(job_, weights_.config.shape, references);
  const auto stop = [this] {
    check_stop();
    budget_.check();
  };
  const int limit = engine.capabilities().context_limit;
  limit_ =
      std::min(limit > 0 ? limit : weights_.config.max_positions, weights_.config.max_positions);
  prompts_failed_ = !times_allowed(report.verdict);
  const bool decided =
      prompts_failed_ && report.verdict != Verdict::kIncomplete && !job_.keep_going;
  Findings findings;
  const WatchEnd end(watch_);
  conclude_however_it_ends(
      [&] {
        watch_.begin("repeats", name, &engine);
        if (decided) {
          // A few repeats tell a race from wrong arithmetic. With ids missing they all fail.
          if (find_check(report, Check::kRan)->status != CheckStatus::kFailed)
            judge_repeats(engine, prompts, options.vocab, stop, findings, kFewRepeats);
          for (const Check check :
               {Check::kRepeats, Check::kIsolation, Check::kHead, Check::kSweep})
            findings.rule_out(check, "not run: decided failure before (--keep-going runs it)");
          engine.audit();
          return;
        }
        report.repeats_sha256 = judge_repeats(engine, prompts, options.vocab, stop, findings);
        const CheckResult* ratchet = find_check(report, Check::kRatchet);
        const bool judged = ratchet != nullptr && ratchet->status != CheckStatus::kNotApplicable;
        if (options.ratchet && judged) note_bits(report.repeats_sha256, *options.ratchet, findings);
        watch_.begin("isolation", name, &engine);
        judge_isolation(
            engine, prompts.front(), prompts.back(), options.vocab,
            [&] { return make(name, max_context_, weights_); }, stop, findings);
        engine.audit();
        if (prompts_failed_) {
          findings.rule_out(Check::kHead, "the prompts have failed");
        } else {
          watch_.begin("head", name, nullptr);
          judge_head(
              weights_, references, options.logits_bf16,
              [&](const ModelWeights& weights) { return make(name, max_context_, weights); }, stop,
              findings);
        }
        watch_.begin("pace", name, &engine);
        pace_ = measure_pace(engine, prompts.back().ids, options.vocab, budget_);
        watch_.begin("sweep", name, nullptr);
        sweep(name, options, findings, report);
        ended_ = true;
      },
      [&] { findings.conclude(report); });
}

// The longest cache that fits into memory.
int Trials::longest_cache() const {
  int longest = weights_.config.max_positions;
  const auto fits = [&](int context) {
    int64_t needed = 0;
    for (const CaseEngine& engine : job_.engines) {
      if (!engine.candidate) continue;
      needed = std::max(
          needed, services_.bytes({.name = engine.name, .max_context = context}, weights_.config));
    }
    for (const std::string& name : {runs_.truth, runs_.head_fp32})
      needed += services_.bytes({.name = name, .max_context = context}, weights_.config);
    const int64_t free = services_.free_bytes();
    return free <= 0 || needed <= free;
  };
  while (longest > max_context_ && !fits(longest)) longest /= 2;
  return longest;
}

// The longest cache that a walk or a prefill is predicted to fill in the time left.
int Trials::longest_in_time(int longest) const {
  const auto fits = [&](int length) {
    return std::min(pace_.decode.between(1, length), pace_.jump(length - 1, 1)) < budget_.left();
  };
  while (longest > kNeededLengths && !fits(longest))
    longest = std::max(longest / 2, kNeededLengths);
  return longest;
}

void Trials::sweep(const std::string& name, const ParityOptions& options, Findings& findings,
                   ParityReport& report) {
  const int known = weights_.config.max_positions, needed = std::min(kNeededLengths, limit_);
  const int room = longest_cache(), cache = std::min(room, limit_);
  const int longest = longest_in_time(cache);
  report.lengths_known = known;
  SweepCoverage walked;
  if (budget_.left() > 0) {
    walked = weights_.lagset.empty()
                 ? sweep_on(name, live_truth(room), weights_, longest, needed, options, findings)
                 : sweep_lagset(name, cache, longest, needed, options, findings);
  }
  report.lengths_judged = walked.last;
  report.coverage =
      fmt::format("cache lengths {}-{} of {} judged ({})", with_commas(walked.first),
                  with_commas(walked.last), with_commas(known), coverage_text(walked));
  if (walked.last < walked.first) report.coverage = "no cache length judged";
  if (limit_ < known)
    report.coverage += fmt::format("; the engine takes at most {}", with_commas(limit_));
  const ModelRow* row = job_.model.row;
  if (!weights_.lagset.empty() && (row == nullptr || row->lagset.empty())) {
    for (const char* lagset : {"deep", "far"})
      report.coverage += "; " + sweep_far(name, lagset, longest, options, findings);
  }
  findings.note(Check::kSweep, report.coverage);
  if (walked.last >= needed) return;
  const std::string why =
      budget_.left() <= 0 ? ""
      : cache < needed    ? fmt::format("; memory has room for a cache of {}", with_commas(cache))
      : weights_.lagset.empty()
          ? fmt::format("; the truth of this run came no further in {:g} s", budget_.seconds())
          : "; the prefill before the first length would take too long";
  findings.unfinished(Check::kSweep,
                      fmt::format("{} of the {} cache lengths that a pass needs{}",
                                  with_commas(walked.last), with_commas(needed), why));
}

// Walks the lag set that the job names, else the lag set of parity. Walks nothing if a prefill up
// to the first length of its closed form does not fit into the cache or the time left.
SweepCoverage Trials::sweep_lagset(const std::string& name, int cache, int longest, int needed,
                                   const ParityOptions& options, Findings& findings) {
  const ModelRow* row = job_.model.row;
  ModelWeights other;
  if (row && !row->lagset.empty() && row->lagset != weights_.lagset) {
    try {
      budget_.outside([&] { other = services_.load(job_.model, 0); });
    } catch (const Error& error) {  // no room for both models: parity's lag set is walked instead
      if (error.kind() != ErrorKind::kEnvUnfit) throw;
      findings.note(Check::kSweep, fmt::format("'{}' left out: {}", row->lagset, error.what()));
    }
  }
  const ModelWeights& weights = other.lagset.empty() ? weights_ : other;
  const int depth = synthetic_min_depth(weights.lagset);
  longest = std::max(longest, std::min(cache, depth + kFarSteppedLengths));
  if (depth >= longest || !jump_fits(budget_, pace_, depth, 1)) return {};
  return sweep_on(name,
                  closed_form_sweep(weights.lagset, weights.config.shape.vocab, longest, longest),
                  weights, longest, needed, options, findings);
}

// Long lags make a token depend on rows far back. Such a lag set is swept from the depth at which
// its closed form begins, if a prefill to that depth fits into the time left. Returns the coverage.
std::string Trials::sweep_far(const std::string& name, const std::string& lagset, int longest,
                              const ParityOptions& options, Findings& findings) {
  const int rows = synthetic_min_depth(lagset);
  if (rows + kFarSteppedLengths > limit_)
    return fmt::format("'{}' left out: its closed form begins at {} rows", lagset,
                       with_commas(rows));
  if (rows + kFarSteppedLengths > longest || !jump_fits(budget_, pace_, rows, kFarSteppedLengths)) {
    return fmt::format(
        "'{}' left out: its closed form begins at {} rows, which take about {:.0f} s", lagset,
        with_commas(rows), pace_.jump(rows, kFarSteppedLengths));
  }
  const ModelRow* row = job_.model.row;
  ModelWeights weights;
  try {
    budget_.outside([&] {
      weights = services_.load(
          resolve_model(fmt::format("{}:{}", row != nullptr ? row->name : "synthetic", lagset)), 0);
    });
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kEnvUnfit) throw;
    return fmt::format("'{}' left out: {}", lagset, error.what());
  }
  const SweepTruth truth =
      closed_form_sweep(lagset, weights.config.shape.vocab, kFarSteppedLengths, longest);
  const SweepCoverage walked = sweep_on(name, truth, weights, longest, 0, options, findings);
  return fmt::format("'{}': {}-{} ({})", lagset, with_commas(walked.first),
                     with_commas(walked.last), coverage_text(walked));
}

SweepCoverage Trials::sweep_on(const std::string& name, const SweepTruth& truth,
                               const ModelWeights& weights, int longest, int needed,
                               const ParityOptions& options, Findings& findings) {
  const std::unique_ptr<Engine> engine = make(name, longest, weights);
  const WatchEnd end(watch_);
  const int first = static_cast<int>(truth.path.ids.size());
  const int last = std::min(first - 1 + static_cast<int>(truth.path.steps.size()),
                            engine->capabilities().max_context);
  const int goal = needed >= first ? std::min(needed, last) : last;
  const auto tell = [&](int length) {
    watch_.begin(fmt::format("cache lengths {}-{}, about {:.0f} s", with_commas(length),
                             with_commas(goal), pace_.decode.between(length, goal)),
                 name, engine.get());
  };
  tell(first);
  int told = kMaxLogitSteps;
  const auto walked = [&](int done, int total) {
    // Renews the predicted time whenever the walk has doubled.
    if (done >= told && first + done <= goal) {
      tell(first + done);
      told = 2 * done;
    } else if (first + done == goal + 1) {
      watch_.begin(fmt::format("cache lengths beyond {}", with_commas(goal)), name, engine.get());
    }
    watch_.count(done, total);
  };
  return judge_sweep(*engine, truth, options,
                     {.stop = [this] { check_stop(); },
                      .budget = &budget_,
                      .pace = &pace_,
                      .needed = needed,
                      .walked = walked,
                      .first_wrong =
                          [&](const FailedStep& step) {
                            if (!swept_) swept_ = {step, weights};
                          }},
                     findings);
}

// Making the truth has its own time limit, as long as the budget, and is not charged to the engine.
// All engines of the case share the truth.
const SweepTruth& Trials::live_truth(int longest) {
  if (live_truth_) return *live_truth_;
  const std::unique_ptr<Engine> truth = make(runs_.truth, longest, weights_),
                                head = make(runs_.head_fp32, longest, weights_);
  const WatchEnd end(watch_);
  watch_.begin("truth of the cache lengths", runs_.truth, truth.get());
  const ModelShape& shape = weights_.config.shape;
  const TimeBudget bound(budget_.seconds(), clock_of(services_));
  budget_.outside([&] {
    live_truth_ = live_sweep(*truth, *head, shape.vocab, {timed_prompt(job_, shape).front()},
                             kNeededLengths, longest, [&] {
                               check_stop();
                               return bound.left() > 0;
                             });
  });
  return *live_truth_;
}

// Repeats a step of the sweep in new engines, with caches as long as the step needs.
void Trials::localise_swept(const std::string& name, const std::vector<GreedyReference>& references,
                            ParityReport& report) {
  auto& [step, weights] = *swept_;
  const WatchEnd end(watch_);
  try {
    if (!ended_) throw Error(ErrorKind::kRuntime, "the engine ended its checks by an error");
    const int context = std::min(weights.config.max_positions, step.position + kMaxLogitSteps);
    const std::unique_ptr<Engine> candidate = make(name, context, weights),
                                  truth = make(runs_.truth, context, weights),
                                  baseline = make(runs_.head_fp32, context, weights);
    watch_.begin("localising", name, candidate.get());
    const LocaliseEngines engines{*candidate, *truth, *baseline};
    const ReplayOptions options =
        replay_options(step.pairwise_d, name, weights.config.shape, references);
    LastStep last;
    step = repeat_step(engines, step, options, &last);
    static_cast<FailureDetails&>(report) =
        details_of(engines, step, last, options, clock_of(services_));
  } catch (const Error& error) {
    static_cast<FailureDetails&>(report) = not_repeated(step, error);
  }
  name_step(job_, weights, name, false, *report.failed_step);
}

// What kept_by_reset() says; an empty string too if another engine cannot be opened.
std::string Trials::find_kept(const std::string& name, Engine& truth,
                              const ReferencePrompt& prompt) {
  try {
    const std::unique_ptr<Engine> fresh = make(name, truth.capabilities().max_context, weights_);
    return kept_by_reset(*fresh, truth, prompt);
  } catch (const Error&) {
    return "";
  }
}

// Repeats the failing step of a prompt. The diagnosis repeats steps of other prompts too.
void Trials::localise_prompt(const LocaliseEngines& engines, const std::string& name,
                             const FoundStep& found, const std::vector<GreedyReference>& references,
                             ParityReport& report) {
  const auto& [reference, prompt, step] = found;
  ReplayOptions options =
      replay_options(reference->pairwise_d, name, weights_.config.shape, references);
  if (report.suspect_is_free) options.free_tokens = static_cast<int>(prompt->steps.size());
  LastStep last;
  report.failed_step = replay_step(engines, *prompt, step, options, &last);
  for (std::string& fact : facts_of_logits(last)) report.facts.push_back(std::move(fact));
  if (report.error_by_position.empty()) report.error_by_position = last.by_position;
  report.localised = report.failed_step->localised;
  name_step(job_, weights_, name, !reference->path.empty() && !report.suspect_is_free,
            *report.failed_step);
  watch_.begin("looking for the bug", name, &engines.candidate);
  // What differs from run to run may come from KV rows of earlier sequences. A new engine has none.
  const bool differs = std::any_of(report.checks.begin(), report.checks.end(), [](const auto& r) {
    return r.status == CheckStatus::kFailed &&
           (r.check == Check::kSame || r.check == Check::kRepeats);
  });
  std::unique_ptr<Engine> other;
  const std::function<Engine&()> next = [&]() -> Engine& {
    other.reset();
    return *(other = make(name, max_context_, weights_));
  };
  report.diagnosis =
      diagnose(engines.candidate, engines.truth,
               replay_windows(*reference, report.rows, *prompt, step,
                              engines.candidate.capabilities().logits),
               options.vocab, tau_of(last.truth, options.pairwise_d, options.logits_bf16),
               clock_of(services_), differs ? next : nullptr);
}

void Trials::localise_failure(Engine& engine, const std::string& name, Engine& baseline,
                              const std::vector<GreedyReference>& references,
                              ParityReport& report) {
  if (!prompts_failed_) {  // no step of a prompt shows what the trials have found
    if (swept_) localise_swept(name, references, report);
    return;
  }
  if (!one_step_shows(report) && !may_be_kept(report)) return;
  const WatchEnd end(watch_);
  watch_.begin("localising", name, &engine);
  const FoundStep found = find_step(references, report.suspect_prompt, report.suspect_position);
  try {
    const ReferencePrompt repeated =
        repeated_prompts(job_, weights_.config.shape, references).front();
    const int room = 2 * (static_cast<int>(repeated.ids.size()) + kRepeatSteps);
    const std::unique_ptr<Engine> truth =
        make(runs_.truth, std::max(max_context_, std::min(room, weights_.config.max_positions)),
             weights_);
    if (may_be_kept(report) && room <= truth->capabilities().max_context)
      report.localised = find_kept(name, *truth, repeated);
    if (!report.localised.empty() || !one_step_shows(report)) return;
    if (found.prompt == nullptr) {
      report.localised = "not localised: no step of a prompt is wrong";
      return;
    }
    localise_prompt({engine, *truth, baseline}, name, found, references, report);
  } catch (const Error& error) {
    report.localised = fmt::format("not localised: {}", error.what());
  }
  if (!report.failed_step || weights_.lagset.empty() || found.prompt->set != "strict") return;
  const int32_t emitted = report.failed_step->found;
  if (emitted != found.prompt->steps[static_cast<size_t>(found.step)].token) {
    report.localised += "; " + localise_lag(weights_.lagset, weights_.config.shape, *found.prompt,
                                            found.step, emitted);
  }
}

}  // namespace mkbench
