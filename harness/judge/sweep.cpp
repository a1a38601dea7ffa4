#include "harness/judge/sweep.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "harness/judge/live.h"
#include "harness/judge/replay.h"
#include "harness/report/render.h"
#include "references/synthetic.h"

namespace mkbench {
namespace {

constexpr int kFirstEdge = 16;
// The share of the budget that the walk may spend beyond the needed lengths, because the prefills
// of the edges come after it.
constexpr double kShareBeyond = 0.125;
// The largest share of the budget that one prefill may take: a token-by-token engine of 7 ms a
// token at 2,000 rows would take 107 s for 8,191 rows.
constexpr double kShareOfJump = 0.25;
// Rows of the two prefills that measure the pace, and the steps decoded after each.
constexpr int kShortPaceRows = 32, kPaceRows = 256, kPaceSteps = 16;
constexpr uint64_t kPromptSeed = 0x73776565;  // for prompts of the closed form; "swee" in ASCII

int cache_length(const ReferencePrompt& prompt, int step) {
  return static_cast<int>(prompt.ids.size()) + step;
}

// The ids of a path: its prompt, then the token of every step.
std::vector<int32_t> ids_of(const ReferencePrompt& path) {
  std::vector<int32_t> ids = path.ids;
  for (const ReferenceStep& step : path.steps) ids.push_back(step.token);
  return ids;
}

ReferencePrompt jump_to(std::vector<int32_t> ids) {
  ReferencePrompt prompt;
  prompt.name = fmt::format("a prefill of {} rows", ids.size() - 1);
  prompt.set = "sweep";
  prompt.ids = std::move(ids);
  return prompt;
}

class SweepJudge {
 public:
  SweepJudge(Engine& engine, const SweepTruth& truth, const ParityOptions& options,
             const SweepBounds& bounds, Findings& findings)
      : engine_(engine),
        truth_(truth),
        options_(options),
        bounds_(bounds),
        findings_(findings),
        with_logits_(engine.capabilities().logits) {
    std::vector<double> norms;
    for (const ReferenceStep& s : truth.path.steps) norms.push_back(s.baseline_error_norm);
    std::sort(norms.begin(), norms.end());
    if (!norms.empty()) median_ = norms[norms.size() / 2];
  }

  // Judges the cache lengths of the path one after another, as far as the bounds allow.
  void walk(const ReferencePrompt& path) {
    const int room = engine_.capabilities().max_context - cache_length(path, 0) + 1;
    const int n = std::min(static_cast<int>(path.steps.size()), room);
    coverage_.first = cache_length(path, 0);
    coverage_.last = coverage_.first - 1;
    if (n <= 0) return;
    bounds_.stop();
    start_prompt(engine_, path);
    for (int at = 0; at < n;) {
      bounds_.stop();
      const int count = next_steps(coverage_.last + 1, n - at);
      if (count <= 0) break;
      const double seconds = timed([&] { run_steps(path, at, count); });
      if (bounds_.pace)
        bounds_.pace->decode.learn(coverage_.last + (count + 1) / 2.0, seconds / count);
      if (coverage_.last >= bounds_.needed) beyond_s_ += seconds;
      at += count;
      coverage_.last += count;
      if (bounds_.walked) bounds_.walked(at, n);
    }
  }

  // Prefills all ids of the jump but the last, then judges its steps.
  void jump(const ReferencePrompt& prompt) {
    const int rows = static_cast<int>(prompt.ids.size()) - 1;
    int steps = static_cast<int>(prompt.steps.size());
    if (const int limit = engine_.capabilities().context_limit; limit > 0)
      steps = std::min(steps, limit - rows);
    if (steps <= 0) return;
    if (!fits(rows, steps)) {
      coverage_.left_out.push_back(rows);
      return;
    }
    bounds_.stop();
    const double seconds = timed([&] { start_prompt(engine_, prompt); });
    if (bounds_.pace && rows > 0) bounds_.pace->prefill.learn(rows, seconds / rows);
    run_steps(prompt, 0, steps);
    coverage_.prefills.push_back(rows);
  }

  void conclude() {
    const double limit = options_.limits.sweep;
    if (truth_.has_logits && with_logits_)
      findings_.measured(Check::kSweep, largest_, limit > 0 ? std::optional(limit) : std::nullopt);
    if (wrong_ == 0) return;
    findings_.fail(Check::kSweep, Verdict::kFailToken,
                   fmt::format("{} of {} cache lengths wrong, first {}", wrong_, judged_, first_));
  }

  const SweepCoverage& coverage() const { return coverage_; }

 private:
  double timed(const std::function<void()>& work) const {
    const double begin = bounds_.budget != nullptr ? bounds_.budget->now() : 0;
    work();
    return bounds_.budget != nullptr ? bounds_.budget->now() - begin : 0;
  }

  bool fits(int rows, int steps) const {
    if (rows + steps > engine_.capabilities().max_context) return false;
    return bounds_.budget == nullptr || jump_fits(*bounds_.budget, *bounds_.pace, rows, steps);
  }

  // Number of steps in the walk's next call: as many as fit into the time left, at least one while
  // any time is left. Lengths up to bounds_.needed may use all of that time.
  int next_steps(int length, int remaining) const {
    const bool beyond = length > bounds_.needed;
    if (!beyond) remaining = std::min(remaining, bounds_.needed - length + 1);
    remaining = std::min(remaining, kMaxLogitSteps);
    if (bounds_.budget == nullptr) return remaining;
    double seconds = bounds_.budget->left();
    if (beyond) {
      seconds = std::min(seconds, bounds_.budget->seconds() * kShareBeyond - beyond_s_);
    }
    if (seconds <= 0) return 0;
    const double pace = bounds_.pace->decode.at(length);
    return pace * remaining <= seconds ? remaining : std::max(1, static_cast<int>(seconds / pace));
  }

  // Judges at most kMaxLogitSteps steps of a prompt whose earlier steps have run.
  void run_steps(const ReferencePrompt& prompt, int first, int count) {
    const auto vocab = static_cast<size_t>(options_.vocab);
    if (with_logits_) {
      logits_.assign(vocab * static_cast<size_t>(count), std::numeric_limits<float>::quiet_NaN());
    }
    const std::vector<int32_t> ids =
        forced_decode(engine_, prompt, first, count, with_logits_ ? logits_.data() : nullptr,
                      options_.vocab, findings_);
    for (int i = 0; i < count; ++i) {
      const float* row = with_logits_ ? logits_.data() + vocab * static_cast<size_t>(i) : nullptr;
      judge_step(prompt, first + i, ids[static_cast<size_t>(i)], row);
    }
  }

  void judge_step(const ReferencePrompt& prompt, int t, int32_t id, const float* logits) {
    const ReferenceStep& step = prompt.steps[static_cast<size_t>(t)];
    ++judged_;
    std::string problem;
    const bool near = within_tau(step, id, truth_.pairwise_d);
    if (id != step.token && !near) problem = fmt::format("found {}, wanted {}", id, step.token);
    if (logits != nullptr) {
      const bool finite =
          std::all_of(logits, logits + options_.vocab, [](float z) { return std::isfinite(z); });
      if (!finite) problem += std::string(problem.empty() ? "" : ", ") + "logits are not finite";
      if (finite && truth_.has_logits) problem += judge_error(step, logits, problem.empty());
    }
    if (problem.empty()) return;
    if (++wrong_ > 1) return;
    first_ = fmt::format("{} rows ({}): {}", cache_length(prompt, t), prompt.name, problem);
    if (bounds_.first_wrong) bounds_.first_wrong(observed(prompt, t, id, logits));
  }

  FailedStep observed(const ReferencePrompt& prompt, int t, int32_t id, const float* logits) const {
    std::vector<float> row;
    if (logits != nullptr) row.assign(logits, logits + options_.vocab);
    ReplayOptions as_judged{.vocab = options_.vocab,
                            .layers = options_.layers,
                            .pairwise_d = truth_.pairwise_d,
                            .text_of = options_.text_of};
    // A repetition must not fail for an error that judge_step() accepts.
    if (with_logits_) {
      const double norm = prompt.steps[static_cast<size_t>(t)].baseline_error_norm;
      as_judged.error_limit =
          truth_.has_logits ? options_.limits.sweep * std::max(median_, norm) : 0.0;
    }
    return observed_step(prompt, t, id, row, as_judged);
  }

  std::string judge_error(const ReferenceStep& step, const float* logits, bool first) {
    const StepError error =
        error_of(step, logits, options_.vocab, kLiveSketchSeed, kLiveProjections);
    const double ratio = std::sqrt(error.squared) / std::max(median_, step.baseline_error_norm);
    largest_ = std::max(largest_, ratio);
    if (ratio <= options_.limits.sweep || options_.limits.sweep <= 0) return "";
    return fmt::format("{}logit error {:.3g} x the baseline's, wanted at most {:g}",
                       first ? "" : ", ", ratio, options_.limits.sweep);
  }

  Engine& engine_;
  const SweepTruth& truth_;
  const ParityOptions& options_;
  const SweepBounds& bounds_;
  Findings& findings_;
  const bool with_logits_;
  std::vector<float> logits_;  // the running call's, [steps, vocab]
  SweepCoverage coverage_;
  double beyond_s_ = 0;  // spent on lengths beyond the needed ones
  double median_ = 0, largest_ = 0;
  int judged_ = 0, wrong_ = 0;
  std::string first_;
};

}  // namespace

std::vector<int> edge_lengths(int longest) {
  std::set<int> lengths;
  for (int64_t power = kFirstEdge; power - 1 <= longest; power *= 2) {
    for (const int64_t length : {power - 1, power, power + 1}) {
      if (length <= longest) lengths.insert(static_cast<int>(length));
    }
  }
  for (const int length : {longest - 1, longest}) {
    if (length > 0) lengths.insert(length);
  }
  return {lengths.begin(), lengths.end()};
}

std::vector<std::pair<int, int>> edge_prefills(int longest) {
  std::vector<std::pair<int, int>> prefills;
  for (const int length : edge_lengths(longest)) {
    const bool shares = length > kEachOwnPrefill && !prefills.empty() &&
                        prefills.back().first + prefills.back().second == length &&
                        prefills.back().first > kEachOwnPrefill;
    if (shares) {
      ++prefills.back().second;
    } else {
      prefills.emplace_back(length, 1);
    }
  }
  return prefills;
}

SweepTruth closed_form_sweep(std::string_view lagset, int vocab, int steps, int longest) {
  SweepTruth truth;
  truth.source = fmt::format("the closed form of '{}'", lagset);
  const int depth = synthetic_min_depth(lagset);
  const auto add_steps = [](ReferencePrompt& prompt, const std::vector<int32_t>& ids, size_t n) {
    for (size_t t = 0; t < n; ++t) {
      ReferenceStep step;
      step.position = static_cast<int>(prompt.ids.size() - 1 + t);
      step.token = ids[prompt.ids.size() + t];
      prompt.steps.push_back(step);
    }
  };
  truth.path = jump_to(synthetic_prompt(depth, kPromptSeed, vocab));
  std::vector<int32_t> ids = truth.path.ids;
  const std::vector<int32_t> behind = synthetic_continuation(ids, lagset, longest - depth, vocab);
  ids.insert(ids.end(), behind.begin(), behind.end());
  truth.path.name = "step by step";
  add_steps(truth.path, ids, static_cast<size_t>(std::min(steps, longest - depth)));
  for (const auto& [length, count] : edge_prefills(longest)) {
    if (length <= depth) continue;
    truth.jumps.push_back(jump_to({ids.begin(), ids.begin() + length}));
    add_steps(truth.jumps.back(), ids, static_cast<size_t>(count));
  }
  return truth;
}

SweepTruth live_sweep(Engine& truth, Engine& head_fp32, int vocab,
                      const std::vector<int32_t>& start, int steps, int longest,
                      const std::function<bool()>& go_on) {
  SweepTruth sweep;
  sweep.source = "the fp32 truth of this run";
  sweep.has_logits = true;
  const int first = static_cast<int>(start.size());
  sweep.path = capture_path(truth, head_fp32, vocab, "step by step", start,
                            std::min(steps, longest - first + 1), go_on);
  const int on_path = static_cast<int>(sweep.path.steps.size());
  const std::vector<int32_t> ids = ids_of(sweep.path);
  for (const auto& [length, count] : edge_prefills(longest)) {
    if (length < first) continue;
    std::vector<int32_t> prefix;
    for (int i = 0; i < length; ++i) {
      prefix.push_back(ids[static_cast<size_t>(i) % ids.size()]);
    }
    ReferencePrompt jump = jump_to(std::move(prefix));
    const int step = length - first;
    if (step + count <= on_path) {
      const auto from = sweep.path.steps.begin() + step;
      jump.steps.assign(from, from + count);
    } else {
      if (!go_on()) break;
      jump = capture_path(truth, head_fp32, vocab, jump.name, jump.ids, count);
    }
    sweep.jumps.push_back(std::move(jump));
  }
  for (const ReferenceStep& s : sweep.path.steps)
    sweep.pairwise_d = std::max(sweep.pairwise_d, s.baseline_pairwise);
  for (const ReferencePrompt& jump : sweep.jumps) {
    for (const ReferenceStep& s : jump.steps)
      sweep.pairwise_d = std::max(sweep.pairwise_d, s.baseline_pairwise);
  }
  return sweep;
}

bool jump_fits(const TimeBudget& budget, const EnginePace& pace, int rows, int steps) {
  return pace.jump(rows, steps) < std::min(budget.left(), budget.seconds() * kShareOfJump);
}

SweepCoverage judge_sweep(Engine& engine, const SweepTruth& truth, const ParityOptions& options,
                          const SweepBounds& bounds, Findings& findings) {
  findings.ran(Check::kSweep);
  SweepJudge judge(engine, truth, options, bounds, findings);
  conclude_however_it_ends(
      [&] {
        judge.walk(truth.path);
        for (const ReferencePrompt& jump : truth.jumps) judge.jump(jump);
      },
      [&] { judge.conclude(); });
  return judge.coverage();
}

EnginePace measure_pace(Engine& engine, const std::vector<int32_t>& ids, int vocab,
                        const TimeBudget& budget) {
  EnginePace pace;
  const int room = engine.capabilities().max_context - kPaceSteps;
  for (const int rows : {kShortPaceRows, std::min(kPaceRows, room)}) {
    if (rows <= 0 || rows > room) continue;
    // The second, longer prefill is skipped if it would take over a twentieth of the time left.
    if (pace.jump(rows, kPaceSteps) > budget.left() / 20) break;
    std::vector<int32_t> prompt;
    for (int i = 0; i <= rows; ++i) prompt.push_back(ids[static_cast<size_t>(i) % ids.size()]);
    const double begin = budget.now();
    engine.reset();
    engine.prefill(prompt);
    const double between = budget.now();
    std::vector<float> logits;
    if (engine.capabilities().logits) logits.resize(static_cast<size_t>(kPaceSteps * vocab));
    engine.decode(kPaceSteps, nullptr, logits.empty() ? nullptr : logits.data());
    pace.prefill.learn(rows, (between - begin) / rows);
    pace.decode.learn(rows + kPaceSteps / 2.0, (budget.now() - between) / kPaceSteps);
  }
  return pace;
}

std::string coverage_text(const SweepCoverage& coverage) {
  const auto listed = [](const std::vector<int>& rows) {
    constexpr size_t kShown = 4;
    std::vector<std::string> texts;
    for (size_t i = 0; i < rows.size(); ++i) {
      if (i < kShown - 1 || i + 1 == rows.size()) texts.push_back(with_commas(rows[i]));
      if (i == kShown - 1 && i + 1 < rows.size()) texts.emplace_back("...");
    }
    return fmt::format("prefill{} of {} rows", rows.size() == 1 ? "" : "s", fmt::join(texts, ", "));
  };
  std::string text = fmt::format("walked {}", with_commas(coverage.last - coverage.first + 1));
  if (!coverage.prefills.empty()) text += "; " + listed(coverage.prefills);
  if (!coverage.left_out.empty()) text += "; left out for their time: " + listed(coverage.left_out);
  return text;
}

}  // namespace mkbench
