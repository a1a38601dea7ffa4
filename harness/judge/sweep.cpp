#include "harness/judge/sweep.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "references/synthetic.h"

namespace mkbench {
namespace {

constexpr int kFirstEdge = 16;
constexpr uint64_t kPromptSeed = 0x73776565;  // of the closed form's prompts; "swee" in ASCII

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
             Findings& findings)
      : engine_(engine),
        truth_(truth),
        options_(options),
        findings_(findings),
        with_logits_(engine.capabilities().logits) {
    std::vector<double> norms;
    for (const ReferenceStep& s : truth.path.steps) norms.push_back(s.baseline_error_norm);
    std::sort(norms.begin(), norms.end());
    if (!norms.empty()) median_ = norms[norms.size() / 2];
  }

  void run(const ReferencePrompt& prompt, const std::function<void()>& stop) {
    const int n = static_cast<int>(prompt.steps.size());
    const auto vocab = static_cast<size_t>(options_.vocab);
    std::vector<float> logits;
    stop();
    start_prompt(engine_, prompt);
    for (int start = 0; start < n; start += kMaxLogitSteps) {
      stop();
      const int count = std::min(kMaxLogitSteps, n - start);
      if (with_logits_) {
        logits.assign(vocab * static_cast<size_t>(count), std::numeric_limits<float>::quiet_NaN());
      }
      const std::vector<int32_t> ids =
          forced_decode(engine_, prompt, start, count, with_logits_ ? logits.data() : nullptr,
                        options_.vocab, findings_);
      for (int i = 0; i < count; ++i) {
        const float* row = with_logits_ ? logits.data() + vocab * static_cast<size_t>(i) : nullptr;
        judge_step(prompt, start + i, ids[static_cast<size_t>(i)], row);
      }
    }
  }

  void conclude() {
    if (truth_.has_logits && with_logits_)
      findings_.measured(Check::kSweep, largest_, options_.limits.step);
    if (wrong_ == 0) return;
    findings_.fail(Check::kSweep, Verdict::kFailToken,
                   fmt::format("{} of {} cache lengths wrong, first {}", wrong_, judged_, first_));
  }

  int judged() const { return judged_; }

 private:
  void judge_step(const ReferencePrompt& prompt, int t, int32_t id, const float* logits) {
    const ReferenceStep& step = prompt.steps[static_cast<size_t>(t)];
    ++judged_;
    std::string problem;
    const bool near = step.margin <= truth_.pairwise_d && within_tau(step, id, truth_.pairwise_d);
    if (id != step.token && !near) problem = fmt::format("found {}, wanted {}", id, step.token);
    if (logits != nullptr) {
      const bool finite =
          std::all_of(logits, logits + options_.vocab, [](float z) { return std::isfinite(z); });
      if (!finite) problem += std::string(problem.empty() ? "" : ", ") + "logits are not finite";
      if (finite && truth_.has_logits) problem += judge_error(step, logits, problem.empty());
    }
    if (problem.empty()) return;
    ++wrong_;
    if (first_.empty())
      first_ = fmt::format("{} rows ({}): {}", cache_length(prompt, t), prompt.name, problem);
  }

  std::string judge_error(const ReferenceStep& step, const float* logits, bool first) {
    const StepError error =
        error_of(step, logits, options_.vocab, kLiveSketchSeed, kLiveProjections);
    const double ratio = std::sqrt(error.squared) / std::max(median_, step.baseline_error_norm);
    largest_ = std::max(largest_, ratio);
    if (ratio <= options_.limits.step) return "";
    return fmt::format("{}logit error {:.3g} x the baseline's, wanted at most {:g}",
                       first ? "" : ", ", ratio, options_.limits.step);
  }

  Engine& engine_;
  const SweepTruth& truth_;
  const ParityOptions& options_;
  Findings& findings_;
  const bool with_logits_;
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

SweepTruth closed_form_sweep(std::string_view lagset, int steps, int longest) {
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
  truth.path = jump_to(synthetic_prompt(depth, kPromptSeed));
  std::vector<int32_t> ids = truth.path.ids;
  const std::vector<int32_t> behind = synthetic_continuation(ids, lagset, longest - depth);
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
                      const std::function<void()>& stop) {
  SweepTruth sweep;
  sweep.source = "the fp32 truth of this run";
  sweep.has_logits = true;
  const int first = static_cast<int>(start.size());
  const int on_path = std::min(steps, longest - first + 1);
  stop();
  sweep.path = capture_path(truth, head_fp32, vocab, "step by step", start, on_path);
  const std::vector<int32_t> ids = ids_of(sweep.path);
  for (const auto& [length, count] : edge_prefills(longest)) {
    if (length < first) continue;
    stop();
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

void judge_sweep(Engine& engine, const SweepTruth& truth, const ParityOptions& options,
                 const std::function<void()>& stop, Findings& findings) {
  findings.ran(Check::kSweep);
  SweepJudge judge(engine, truth, options, findings);
  judge.run(truth.path, stop);
  for (const ReferencePrompt& jump : truth.jumps) judge.run(jump, stop);
  judge.conclude();
}

}  // namespace mkbench
