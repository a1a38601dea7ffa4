#include "harness/flow/soak.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <memory>

#include "harness/flow/interrupt.h"
#include "harness/flow/timed_truth.h"
#include "harness/judge/conclude.h"
#include "harness/judge/repeats.h"
#include "harness/report/render.h"
#include "references/base/error.h"
#include "references/model_row.h"
#include "references/synthetic.h"

namespace mkbench {
namespace {

constexpr double kKeepEveryS = 0.5;

// What one step adds to the report. An interrupted step adds nothing: it is run again.
struct StepResult {
  SoakReport sums{};

  void look(SoakCheck check, bool holds = true) {
    ++sums.count(check).looked;
    sums.count(check).failed += holds ? 0 : 1;
  }
};

class SoakedStep {
 public:
  // `stressed`: the engine has the hook for counters and delays.
  SoakedStep(Engine& engine, bool stressed, const CaseServices& services, int vocab,
             const SoakTruth& truth, SoakStep step, StepResult& result)
      : engine_(engine),
        stressed_(stressed),
        services_(services),
        can_(engine.capabilities()),
        vocab_(vocab),
        step_(step),
        result_(result) {
    wanted_ = truth.draw(step_, prompt_);
  }

  void run() {
    // The prefill is stressed too: the kernel of the launches also runs short prefills, and a
    // repeated prefill gives the same rows only if its sums have the same order.
    stress();
    call([&] { start_afresh(engine_, prompt_); });
    // Restart the counters: those that begin near an edge must pass it in the first launch.
    stress();
    Snapshot start;
    if (can_.snapshots) call([&] { start = engine_.save(); });
    const RunBits first = launch(0, "the first launch");
    if (result_.sums.count(SoakCheck::kTokens).failed > 0) return;  // a repeat would add nothing
    for (int r = 0; r < step_.repeats; ++r) repeat(r, start, first);
    for (int f = 1; f <= step_.further; ++f)
      launch(static_cast<size_t>(f * step_.tokens), fmt::format("further launch {}", f));
  }

 private:
  void call(const std::function<void()>& work) {
    if (services_.stop()) throw Interrupted{};
    work();
    result_.look(SoakCheck::kCalls);
  }

  void stress() {
    if (stressed_) call([&] { engine_.stress(step_.stress); });
  }

  // `from`: index in wanted_ of the launch's first token.
  RunBits launch(size_t from, const std::string& which) {
    RunBits bits;
    if (step_.logits && can_.logits) {
      bits.logits.assign(static_cast<size_t>(step_.tokens) * static_cast<size_t>(vocab_),
                         std::numeric_limits<float>::quiet_NaN());
    }
    float* const logits = bits.logits.empty() ? nullptr : bits.logits.data();
    call([&] { bits.ids = engine_.decode(step_.tokens, nullptr, logits); });
    ++result_.sums.launches;
    check_tokens(bits.ids, from, which);
    return bits;
  }

  void check_tokens(const std::vector<int32_t>& ids, size_t from, const std::string& which) {
    const size_t known = wanted_.size() > from ? wanted_.size() - from : 0;
    for (size_t t = 0; t < std::min(known, static_cast<size_t>(step_.tokens)); ++t) {
      const int32_t id = t < ids.size() ? ids[t] : -1;
      result_.look(SoakCheck::kTokens, id == wanted_[from + t]);
      if (id != wanted_[from + t]) {
        fail(SoakCheck::kTokens,
             fmt::format("{}: {} rows: found {}, wanted {}", which,
                         step_.rows + static_cast<int>(from + t) + 1, id, wanted_[from + t]));
      }
    }
  }

  void repeat(int r, const Snapshot& start, const RunBits& first) {
    const bool can_go_back = can_.snapshots || can_.rewind;
    const bool afresh = !can_go_back || (step_.ways >> r & 1) != 0;
    const std::string which = fmt::format("launch {} of {}, after a {}", r + 2, step_.repeats + 1,
                                          afresh           ? "reset"
                                          : can_.snapshots ? "restore"
                                                           : "rewind");
    call([&] {
      if (afresh) return start_afresh(engine_, prompt_);
      start_again(engine_, start, prompt_);
      if (!can_.snapshots) engine_.set_pending(prompt_.back());
    });
    const std::string difference = first_difference(launch(0, which), first);
    if (!can_.deterministic) return;
    result_.look(SoakCheck::kLaunches, difference.empty());
    result_.look(afresh ? SoakCheck::kResets : SoakCheck::kRestores, difference.empty());
    if (!difference.empty()) fail(SoakCheck::kLaunches, which + ": " + difference);
  }

  // Records only the first failure of each check.
  void fail(SoakCheck check, const std::string& what) {
    const SoakCheckInfo& info = info_of(check);
    for (const SoakFailure& failure : result_.sums.failures) {
      if (failure.check == info.name) return;
    }
    result_.sums.failures.push_back({.step = step_.number,
                                     .check = std::string(info.name),
                                     .verdict = info.verdict,
                                     .reason = fmt::format("{} ({})", what, step_text(step_))});
  }

  Engine& engine_;
  const bool stressed_;
  const CaseServices& services_;
  const EngineCapabilities can_;
  const int vocab_;
  SoakStep step_;
  StepResult& result_;
  std::vector<int32_t> prompt_, wanted_;
};

class Soak {
 public:
  Soak(const SoakPlan& plan, const CaseServices& services, const ModelWeights& weights,
       const SoakTruth& truth, SoakReport& report,
       const std::function<void(const SoakReport&)>& keep)
      : plan_(plan),
        services_(services),
        weights_(weights),
        truth_(truth),
        report_(report),
        keep_(keep),
        begun_s_(services.now()),
        before_s_(report.seconds),
        bounds_{.context = report.identity.context,
                .least_rows = truth.least_rows,
                .seed = report.identity.seed},
        edges_(soak_edges(bounds_)) {
    report_.truth = truth.source;
    report_.edges = static_cast<int64_t>(edges_.size());
  }

  void run() {
    open();
    bool interrupted = false;
    try {
      if (plan_.only_step) {
        one_step(*plan_.only_step);
      } else {
        while (!over()) one_step(report_.steps);
      }
    } catch (const Interrupted&) {
      interrupted = true;
      ++report_.interruptions;
    } catch (const Error& error) {
      failed_call(error);
    }
    engine_.reset();
    report_.seconds = seconds();
    conclude(report_, interrupted);
    keep_(report_);
  }

 private:
  double seconds() const { return before_s_ + services_.now() - begun_s_; }

  void open() {
    // The faults of plain are compiled into a separate instance.
    const bool hooked = plan_.engine.name == "plain" && plan_.job.fault != PlantedFault::kNone;
    engine_ = services_.make_engine({.name = hooked ? kPlainWithFaults : plan_.engine.name,
                                     .max_context = report_.identity.context,
                                     .fault = plan_.job.fault},
                                    weights_);
    const EngineCapabilities can = engine_->capabilities();
    if (can.max_context < report_.identity.context)
      throw Error(ErrorKind::kBadInput,
                  fmt::format("engine {}: --context: found {}, wanted at most its max_context, {}",
                              plan_.engine.name, report_.identity.context, can.max_context));
    report_.resolved = can.name;
    report_.runs_on = can.device;
    report_.compared = can.deterministic;
    const std::optional<std::string> left_out = engine_->stress({.count_from = 1 << 16});
    report_.stressed = left_out.has_value();
    report_.left_out = left_out.value_or("");
  }

  bool over() const {
    if (report_.failures.size() >= kMostSoakFailures) return true;
    if (has_enough(report_) && !plan_.all_minutes) return true;
    return seconds() - before_s_ > 60 * report_.asked_minutes;
  }

  void one_step(int64_t number) {
    number_ = number;
    const SoakStep step = draw_step(bounds_, edges_, number);
    StepResult result;
    try {
      SoakedStep(*engine_, report_.stressed, services_, weights_.config.shape.vocab, truth_, step,
                 result)
          .run();
    } catch (const Error&) {
      add_sums(result);  // what was found before the call that failed
      throw;
    }
    add(result, step);
    if (seconds() - kept_s_ < kKeepEveryS) return;
    report_.seconds = kept_s_ = seconds();
    keep_(report_);
  }

  void add(const StepResult& result, const SoakStep& step) {
    ++report_.steps;
    add_sums(result);
    report_.edges_passed = std::min(report_.edges, report_.edges_passed + (step.edge >= 0 ? 1 : 0));
    report_.fills += step.fills;
    report_.near_32_bits +=
        report_.stressed && report_.left_out.empty() && step.stress.count_from > 0;
    report_.delayed += report_.stressed && step.stress.delay_us > 0;
  }

  void add_sums(const StepResult& result) {
    report_.launches += result.sums.launches;
    for (size_t i = 0; i < kSoakChecks.size(); ++i) {
      report_.counts[i].looked += result.sums.counts[i].looked;
      report_.counts[i].failed += result.sums.counts[i].failed;
    }
    for (const SoakFailure& failure : result.sums.failures) tell(failure);
  }

  void tell(SoakFailure failure) {
    failure.seconds = seconds();
    failure.command = fmt::format("{} --step {}", plan_.command, failure.step);
    report_.failures.push_back(std::move(failure));
  }

  // Counts the call as looked at and as failed.
  void failed_call(const Error& error) {
    SoakCount& calls = report_.count(SoakCheck::kCalls);
    ++calls.looked, ++calls.failed;
    tell({.step = number_,
          .check = calls.check,
          .verdict = verdict_of(error.kind()),
          .reason = fmt::format("{} ({})", error.what(),
                                step_text(draw_step(bounds_, edges_, number_)))});
  }

  const SoakPlan& plan_;
  const CaseServices& services_;
  const ModelWeights& weights_;
  const SoakTruth& truth_;
  SoakReport& report_;
  const std::function<void(const SoakReport&)>& keep_;
  const double begun_s_, before_s_;
  double kept_s_ = 0;
  const SoakBounds bounds_;
  const std::vector<int> edges_;
  std::unique_ptr<Engine> engine_;
  int64_t number_ = 0;
};

SoakTruth closed_form(const ModelWeights& weights) {
  const std::string lagset = weights.lagset;
  const int vocab = weights.config.shape.vocab;
  SoakTruth truth{.source = fmt::format("the closed form of '{}'", lagset),
                  .least_rows = synthetic_min_depth(lagset),
                  .draw = {}};
  truth.draw = [lagset, vocab](SoakStep& step, std::vector<int32_t>& prompt) {
    prompt = synthetic_prompt(step.rows, step.prompt_seed, vocab);
    return synthetic_continuation(prompt, lagset, last_position(step) - step.rows, vocab);
  };
  return truth;
}

std::vector<int32_t> random_prompt(int rows, uint64_t seed, int vocab) {
  std::vector<int32_t> ids;
  for (int i = 0; i <= rows; ++i) {
    ids.push_back(static_cast<int32_t>(splitmix64(seed + static_cast<uint64_t>(i)) %
                                       static_cast<uint64_t>(vocab)));
  }
  return ids;
}

std::vector<ReferencePrompt> strict_prompts(const std::vector<GreedyReference>& references,
                                            int context) {
  std::vector<ReferencePrompt> strict;
  for (const GreedyReference& reference : references) {
    for (const ReferencePrompt& prompt : reference.prompts) {
      const bool fits = prompt.ids.size() + prompt.steps.size() <= static_cast<size_t>(context);
      if (prompt.set == "strict" && fits && !prompt.steps.empty()) strict.push_back(prompt);
    }
  }
  return strict;
}

}  // namespace

SoakTruth soak_truth(const ModelWeights& weights, const std::vector<GreedyReference>& references,
                     int context) {
  if (!weights.lagset.empty()) return closed_form(weights);
  const int vocab = weights.config.shape.vocab;
  const std::vector<ReferencePrompt> strict = strict_prompts(references, context);
  SoakTruth truth;
  if (!strict.empty())
    truth.source = fmt::format("the {} strict prompts of the reference", strict.size());
  truth.draw = [strict, vocab](SoakStep& step, std::vector<int32_t>& prompt) {
    if (strict.empty() || !step.known) {
      prompt = random_prompt(step.rows, step.prompt_seed, vocab);
      return std::vector<int32_t>{};
    }
    const ReferencePrompt& chosen = strict[step.prompt_seed % strict.size()];
    const int known = static_cast<int>(chosen.steps.size());
    prompt = chosen.ids;
    step.rows = static_cast<int>(prompt.size()) - 1;
    step.tokens = std::min(step.tokens, known);
    step.further = std::min(step.further, known / step.tokens - 1);
    std::vector<int32_t> ids;
    for (const ReferenceStep& one : chosen.steps) ids.push_back(one.token);
    return ids;
  };
  return truth;
}

void run_soak(const SoakPlan& plan, const CaseServices& services, const ModelWeights& weights,
              const SoakTruth& truth, SoakReport& report,
              const std::function<void(const SoakReport&)>& keep) {
  Soak(plan, services, weights, truth, report, keep).run();
}

}  // namespace mkbench
