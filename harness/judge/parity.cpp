#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <numeric>

#include "harness/judge/budget.h"
#include "harness/judge/facts.h"
#include "harness/judge/findings.h"
#include "harness/judge/flips.h"
#include "harness/judge/states.h"
#include "references/base/sha256.h"

namespace mkbench {
namespace {

constexpr int kRunsOfFailure = 5;  // free runs of the first prompt that fails

int steps_of(const GreedyReference& reference) {
  return std::accumulate(reference.prompts.begin(), reference.prompts.end(), 0,
                         [](int n, const ReferencePrompt& p) { return n + std::ssize(p.steps); });
}

class Judge {
 public:
  Judge(Engine& engine, const GreedyReference& reference, const ParityOptions& options)
      : engine_(engine),
        reference_(reference),
        options_(options),
        with_logits_(engine.capabilities().logits) {
    if (with_logits_ && options.vocab <= 0) {
      throw Error(ErrorKind::kRuntime,
                  "parity options: vocab is not set, but the engine shows logits");
    }
    steps_in_all_ = steps_of(reference);
  }

  void run(ParityReport& report, Findings& findings) {
    conclude_however_it_ends(
        [&] {
          for (const ReferencePrompt& prompt : reference_.prompts)
            judge_prompt(prompt, report, findings);
        },
        [&] { conclude(report, findings); });
  }

 private:
  // Judges what the prompts have shown so far.
  void conclude(ParityReport& report, Findings& findings) {
    tally_rows(report);
    if (with_logits_ && engine_.capabilities().deterministic && report.steps == steps_in_all_)
      report.logits_sha256 = bits_.hex();
    judge_tokens(report, findings);
    judge_finite(report, findings);
    if (!unequal_free_.first.empty())
      suspect(report, unequal_free_.first, unequal_free_.second, true);
    if (with_logits_) {
      judge_self(report, findings);
      judge_logit_errors(report, findings);
    } else {
      findings.rule_out(Check::kSelf, "this engine shows no logits");
      rule_out_ratios("this engine shows no logits", findings);
    }
    report.error_by_position = sums_.errors_of(report.suspect_prompt, options_.limits.step);
    if (first_unequal_) findings.fail(Check::kSame, Verdict::kNondeterministic, *first_unequal_);
    report.facts = facts_of_steps(seen_, options_.limits.step, engine_.capabilities().forced);
  }

  double tau_of(const ReferenceStep& step) const {
    return reference_.pairwise_d + (options_.logits_bf16 ? bf16_step(step.max_abs) : 0);
  }

  // Judges one token in the truth's own context: EXACT, TIE or WRONG.
  StepVerdict judge_token(const ReferenceStep& step, int32_t id) const {
    if (id == step.token) return StepVerdict::kExact;
    return within_tau(step, id, tau_of(step)) ? StepVerdict::kTie : StepVerdict::kWrong;
  }

  void judge_prompt(const ReferencePrompt& prompt, ParityReport& report, Findings& findings) {
    std::vector<int32_t> free_ids;
    if (options_.free_runs) {
      start_prompt(engine_, prompt);
      free_ids = checked_decode(engine_, static_cast<int>(prompt.steps.size()), nullptr, nullptr,
                                prompt.name, findings);
    }
    std::vector<ForcedStep> forced;
    try {
      look_inside(prompt);
      forced_run(prompt, with_logits_, forced, findings);
      look_inside(prompt);
      compare_runs(prompt, free_ids, forced, findings);
    } catch (...) {
      // Steps from before the failure are judged all the same. Up to its first difference the free
      // run had the truth's context, so its ids stand in for teacher-forced ones that are missing.
      for (size_t t = forced.size(); t < same_context(prompt, free_ids); ++t)
        forced.push_back({.id = free_ids[t], .argmax = free_ids[t]});
      judge_steps(prompt, free_ids, forced, report);
      throw;
    }
    judge_steps(prompt, free_ids, forced, report);
    ++report.prompts;
    if (!report.suspect_prompt.empty() || first_unequal_) repeat(prompt, free_ids, findings);
  }

  // Repeats the free run of the first prompt that fails: where equal input gives different ids, the
  // other failures may be chance.
  void repeat(const ReferencePrompt& prompt, const std::vector<int32_t>& first,
              Findings& findings) {
    if (repeated_ || !options_.free_runs || !engine_.capabilities().deterministic) return;
    repeated_ = true;
    findings.ran(Check::kRepeats);
    int differ = 0;
    std::string where;
    for (int i = 1; i < kRunsOfFailure; ++i) {
      start_prompt(engine_, prompt);
      const std::vector<int32_t> ids = checked_decode(engine_, static_cast<int>(first.size()),
                                                      nullptr, nullptr, prompt.name, findings);
      const auto at = std::mismatch(ids.begin(), ids.end(), first.begin());
      if (at.first == ids.end()) continue;
      if (++differ == 1)
        where = fmt::format("run {} at position {}: {} against {}", i + 1,
                            prompt.steps[static_cast<size_t>(at.first - ids.begin())].position,
                            *at.first, *at.second);
    }
    if (differ > 0)
      findings.fail(Check::kRepeats, Verdict::kNondeterministic,
                    fmt::format("prompt '{}': {} of {} equal free runs differ from the first, {}",
                                prompt.name, differ, kRunsOfFailure, where));
  }

  // Adds a row for each step of `forced`. `free_ids`: empty without a free run.
  void judge_steps(const ReferencePrompt& prompt, const std::vector<int32_t>& free_ids,
                   const std::vector<ForcedStep>& forced, ParityReport& report) {
    bool forked = false;
    for (size_t t = 0; t < forced.size(); ++t) {
      const int32_t free_id = free_ids.empty() ? forced[t].id : free_ids[t];
      report.rows.push_back(
          judge_step(prompt, static_cast<int>(t), free_id, forced[t], forked, report));
      forked = forked || free_id != prompt.steps[t].token;
    }
    report.steps += static_cast<int>(forced.size());
  }

  // The number of steps that the free run took in the truth's context: up to its first difference,
  // that step included.
  static size_t same_context(const ReferencePrompt& prompt, const std::vector<int32_t>& free_ids) {
    const size_t n = free_ids.size();
    size_t same = 0;
    while (same < n && free_ids[same] == prompt.steps[same].token) ++same;
    return std::min(n, same + 1);
  }

  // The row of one step, from its free-running id and its teacher-forced one. `forked`: the free
  // run left the reference's path at an earlier step.
  ParityRow judge_step(const ReferencePrompt& prompt, int t, int32_t free_id,
                       const ForcedStep& forced, bool forked, ParityReport& report) {
    const ReferenceStep& step = prompt.steps[static_cast<size_t>(t)];
    const bool strict = prompt.set == "strict";
    const bool decided = step.margin > tau_of(step);
    if (strict && !decided) {
      throw Error(ErrorKind::kInvalidReference,
                  fmt::format("reference {}: strict prompt '{}' position {}: margin {:.4g}, wanted "
                              "over tau {:.4g}",
                              reference_.path.string(), prompt.name, step.position, step.margin,
                              tau_of(step)));
    }
    report.decided_steps += decided;
    row_decided_.push_back(decided);
    report.flips += forced.id != step.token;
    report.strict_steps += strict;
    report.strict_matched += strict && free_id == step.token;
    // Bounded, so that the count of an all-NaN engine fits an int for up to 2,047 steps.
    report.non_finite += static_cast<int>(std::min<int64_t>(forced.non_finite, 1 << 20));
    // An id that was never returned is missing, not inconsistent.
    const bool not_own = with_logits_ && forced.id != -1 && forced.id != forced.argmax;
    report.self_inconsistent += not_own;
    if (forced.error) sums_.add(prompt.name, step, *forced.error);

    StepVerdict verdict = judge_token(step, forced.id);
    seen_.push_back({&prompt, t, forced, verdict == StepVerdict::kWrong});
    int32_t shown = forced.id;
    if (!forked && free_id != step.token) {
      // Up to its first difference the free run has the truth's context, so the rule for
      // teacher-forced tokens judges that difference too.
      const StepVerdict of_free = judge_token(step, free_id);
      if (of_free == StepVerdict::kWrong || verdict == StepVerdict::kExact) {
        verdict = std::max(verdict, of_free);
        shown = free_id;
      }
    } else if (strict && free_id != step.token && verdict == StepVerdict::kExact) {
      verdict = StepVerdict::kDrift;  // after the fork, but right when teacher-forced
      shown = free_id;
    }
    const bool is_free = shown != forced.id;
    if (verdict == StepVerdict::kWrong || forced.non_finite > 0 || not_own)
      suspect(report, prompt.name, step.position, is_free);
    ParityRow row = make_row(prompt, t, shown, options_);
    row.verdict = verdict;
    return row;
  }

  static void suspect(ParityReport& report, const std::string& prompt, int position, bool is_free) {
    if (!report.suspect_prompt.empty()) return;
    report.suspect_prompt = prompt;
    report.suspect_position = position;
    report.suspect_is_free = is_free;
  }

  // Runs the prompt teacher-forced on the truth's path, and adds each step to `result` as it comes.
  void forced_run(const ReferencePrompt& prompt, bool with_logits, std::vector<ForcedStep>& result,
                  Findings& findings) {
    const int n = static_cast<int>(prompt.steps.size());
    const auto take = [&](int, const std::vector<int32_t>& ids, const std::vector<float>& logits) {
      if (with_logits) {
        bits_.update(ids.data(), ids.size() * sizeof(ids[0]));
        bits_.update(logits.data(), logits.size() * sizeof(logits[0]));
      }
      for (size_t i = 0; i < ids.size(); ++i) {
        result.push_back({.id = ids[i]});
        if (with_logits) {
          measure_step(prompt.steps[result.size() - 1],
                       logits.data() + static_cast<size_t>(options_.vocab) * i, result.back());
        }
      }
      if (with_logits == with_logits_) report_progress(prompt.name, std::ssize(ids));
    };
    mkbench::forced_run(engine_, prompt, with_logits ? 0 : n, n, options_.vocab, findings, take);
  }

  void measure_step(const ReferenceStep& expected, const float* logits, ForcedStep& step) const {
    scan_logits(logits, options_.vocab, step);
    if (step.non_finite > 0 || expected.sketch.empty()) return;
    step.error = error_of(expected, logits, options_.vocab, reference_.sketch_seed,
                          reference_.sketch_projections);
    step.error->rounding = allowed_rounding(expected, logits, options_.vocab, options_.precision);
  }

  // Looks for NaN and Inf in hidden states and KV rows after a run of a prompt.
  void look_inside(const ReferencePrompt& prompt) {
    const StateScan scan = scan_states(engine_, options_.layers,
                                       static_cast<int>(prompt.ids.size()) - 1, options_.every_row);
    states_seen_ += scan.states;
    if (first_not_finite_.empty() && !scan.first.empty())
      first_not_finite_ = fmt::format("{} after prompt '{}'", scan.first, prompt.name);
  }

  // Ids with and without logits must be equal wherever both runs had equal contexts; those of an engine
  // whose bits may vary at decided steps alone.
  void compare_runs(const ReferencePrompt& prompt, const std::vector<int32_t>& free_ids,
                    const std::vector<ForcedStep>& forced, Findings& findings) {
    if (!options_.free_runs || first_unequal_) return;
    findings.ran(Check::kSame);
    const size_t same = same_context(prompt, free_ids);
    for (size_t t = 0; t < same; ++t) {
      if (!note_unequal(prompt, t, free_ids[t], "in a free run", forced[t].id)) continue;
      unequal_free_ = {prompt.name, prompt.steps[t].position};
      return;
    }
    // After a fork the free run cannot be compared; a second forced run, without logits, can.
    if (same == prompt.steps.size() || !with_logits_) return;
    std::vector<ForcedStep> bare;
    forced_run(prompt, false, bare, findings);
    for (size_t t = 0; t < bare.size(); ++t) {
      if (note_unequal(prompt, t, bare[t].id, "in a forced run", forced[t].id)) return;
    }
  }

  // `how`: the run without logits that gave the id `without`; `id` came from the forced run.
  bool note_unequal(const ReferencePrompt& prompt, size_t t, int32_t without, const char* how,
                    int32_t id) {
    const ReferenceStep& step = prompt.steps[t];
    if (without == id) return false;
    if (!engine_.capabilities().deterministic && step.margin <= tau_of(step)) return false;
    first_unequal_ =
        fmt::format("prompt '{}' position {}: {} {}{}, {} in a forced run{}", prompt.name,
                    step.position, without, how, with_logits_ ? " without logits" : "", id,
                    with_logits_ ? " with logits" : "");
    return true;
  }

  // Fails the check of decided steps, or of near ties, if a row of that kind is WRONG.
  void judge_rows(const ParityReport& report, bool decided, Findings& findings) const {
    const Check check = decided ? Check::kDecided : Check::kNearTie;
    const ParityRow* first = nullptr;
    int wrong = 0;
    for (size_t i = 0; i < report.rows.size(); ++i) {
      if (row_decided_[i] != decided) continue;
      findings.ran(check);
      if (report.rows[i].verdict != StepVerdict::kWrong) continue;
      if (first == nullptr) first = &report.rows[i];
      ++wrong;
    }
    if (first == nullptr) return;
    findings.fail(check, Verdict::kFailToken,
                  fmt::format("{} of {} tokens wrong{}, first {} (margin {:.3g}, D {:.3g})", wrong,
                              report.steps, decided ? "" : " at near ties", describe_row(*first),
                              first->margin, reference_.pairwise_d));
  }

  void judge_tokens(ParityReport& report, Findings& findings) const {
    judge_rows(report, true, findings);
    judge_rows(report, false, findings);
    const std::string none =
        report.steps == steps_in_all_ ? "the reference has no " : "the steps reached hold no ";
    findings.rule_out(Check::kDecided, none + "decided step");
    findings.rule_out(Check::kNearTie, none + "near tie");
    findings.rule_out(Check::kStrict, none + "strict prompt");
    judge_strict(report, findings);
    report.flips_allowed = most_flips(reference_, options_.logits_bf16);
    findings.measured(Check::kFlips, report.flips, report.flips_allowed);
    if (report.flips > report.flips_allowed) {
      findings.fail(
          Check::kFlips, Verdict::kFailToken,
          fmt::format("flip cap: {} of {} steps differ from the truth, at most {} allowed",
                      report.flips, report.steps, report.flips_allowed));
    }
  }

  void judge_strict(const ParityReport& report, Findings& findings) const {
    if (report.strict_steps == 0 || !options_.free_runs) return;
    findings.ran(Check::kStrict);
    if (report.strict_matched == report.strict_steps) return;
    findings.fail(Check::kStrict, Verdict::kFailToken,
                  fmt::format("strict set: {} of {} free-running tokens are equal",
                              report.strict_matched, report.strict_steps));
  }

  void judge_finite(const ParityReport& report, Findings& findings) const {
    if (!with_logits_ && states_seen_ == 0) {
      findings.rule_out(Check::kFinite, "this engine shows no logits, hidden states or KV rows");
      return;
    }
    findings.ran(Check::kFinite);
    if (states_seen_ == 0 && options_.layers > 0) {
      findings.note(Check::kFinite, "logits alone: this engine shows no hidden states or KV rows");
    }
    if (report.non_finite > 0) {
      findings.fail(
          Check::kFinite, Verdict::kFailFidelity,
          fmt::format("{} logits are NaN or Inf or were never written", report.non_finite));
    }
    if (!first_not_finite_.empty()) {
      findings.fail(Check::kFinite, Verdict::kFailFidelity,
                    fmt::format("NaN or Inf in the {}", first_not_finite_));
    }
  }

  void judge_logit_errors(ParityReport& report, Findings& findings) const {
    if (reference_.sketch_projections <= 0) {
      rule_out_ratios("the reference has no sketches", findings);
    } else if (options_.one_prompt) {
      rule_out_ratios("one prompt alone is judged", findings);
    } else if (report.non_finite > 0) {
      rule_out_ratios("some logits are not finite", findings);  // NaN gives no ratio
    } else if (report.steps < steps_in_all_) {
      // The limits hold for whole prompt sets; a few steps vary more.
      rule_out_ratios("not all steps were reached", findings);
    } else {
      judge_ratios(sums_, reference_, options_, report, findings);
    }
  }

  void judge_self(const ParityReport& report, Findings& findings) const {
    findings.ran(Check::kSelf);
    if (report.self_inconsistent == 0) return;
    findings.fail(Check::kSelf, Verdict::kFailSelf,
                  fmt::format("{} of {} emitted tokens are not the lowest-index argmax of the "
                              "engine's own logits",
                              report.self_inconsistent, report.steps));
  }

  void report_progress(const std::string& prompt, int steps) {
    steps_done_ += steps;
    if (options_.on_progress) options_.on_progress(prompt, steps_done_, steps_in_all_);
  }

  Engine& engine_;
  const GreedyReference& reference_;
  const ParityOptions& options_;
  const bool with_logits_;
  int steps_in_all_ = 0, steps_done_ = 0;
  RatioSums sums_;
  std::vector<SeenStep> seen_;     // every step, in the order of judging
  Sha256 bits_;                    // hash of ids and logits of the teacher-forced steps
  std::vector<bool> row_decided_;  // one for each row of the report
  int states_seen_ = 0;
  std::string first_not_finite_;
  std::optional<std::string> first_unequal_;
  bool repeated_ = false;                     // the free run of a prompt that fails was repeated
  std::pair<std::string, int> unequal_free_;  // prompt, position: free and forced ids differ there
};

}  // namespace

void judge_parity(Engine& engine, const GreedyReference& reference, const ParityOptions& options,
                  ParityReport& report) {
  if (reference.prompts.empty()) {
    throw Error(ErrorKind::kInvalidReference,
                fmt::format("reference {}: prompts: found none", reference.path.string()));
  }
  report.precision = precision_class_name(options.precision);
  report.reference = reference.path.empty() ? "live" : reference.path.filename().string();
  report.reference_sha256 = reference.sha256;
  Findings findings;
  conclude_however_it_ends(
      [&] {
        try {
          if (reference.token_only) {
            judge_token_only(engine, reference, options, report, findings);
          } else {
            Judge(engine, reference, options).run(report, findings);
          }
        } catch (const BudgetEnded&) {
          findings.unfinished(Check::kDecided, fmt::format("{} of {} steps of the prompts",
                                                           report.steps, steps_of(reference)));
        }
      },
      [&] {
        findings.conclude(report);
        if (times_allowed(report.verdict)) static_cast<FailureDetails&>(report) = {};
      });
}

ParityReport judge_parity(Engine& engine, const GreedyReference& reference,
                          const ParityOptions& options) {
  ParityReport report;
  judge_parity(engine, reference, options, report);
  return report;
}

}  // namespace mkbench
