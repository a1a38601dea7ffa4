#include "harness/judge/live.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "harness/judge/findings.h"
#include "harness/judge/ratios.h"

namespace mkbench {
namespace {

using Logits = std::vector<float>;  // [steps, vocab]

// The truth's half of a step: all of its fields that follow from the truth's logits z [vocab].
ReferenceStep truth_step(const float* z, int vocab, int position) {
  ReferenceStep step;
  step.position = position;
  std::vector<int32_t> order(static_cast<size_t>(vocab));
  std::iota(order.begin(), order.end(), 0);
  const auto top = order.begin() + std::min(kTopIds, vocab);
  std::partial_sort(order.begin(), top, order.end(), [z](int32_t a, int32_t b) {
    return z[a] != z[b] ? z[a] > z[b] : a < b;  // lowest index among equals
  });
  step.top_ids.assign(order.begin(), top);
  for (const int32_t id : step.top_ids) step.top_logits.push_back(z[id]);
  step.token = step.top_ids.front();
  step.mean = mean_of(z, vocab);
  step.logsumexp = logsumexp_of(z, vocab);
  double squares = 0;
  for (int i = 0; i < vocab; ++i) {
    squares += (z[i] - step.mean) * (z[i] - step.mean);
    step.max_abs = std::max(step.max_abs, std::abs(double{z[i]}));
  }
  step.centred_norm = std::sqrt(squares);
  step.margin =
      step.top_logits.size() > 1 ? double{step.top_logits[0]} - double{step.top_logits[1]} : 0;
  step.sketch = sketch_of(z, vocab, kLiveSketchSeed, kLiveProjections);
  return step;
}

// The baseline's half of a step: errors of its logits against the truth's.
void add_baseline_errors(const float* truth, const float* baseline, int vocab,
                         ReferenceStep& step) {
  const double baseline_mean = mean_of(baseline, vocab);
  const auto width = static_cast<size_t>(vocab);
  step.baseline_error_norm = centred_distance({baseline, width}, {truth, width});
  double low = 0, high = 0;
  for (size_t i = 0; i < step.top_ids.size(); ++i) {
    const int32_t id = step.top_ids[i];
    const double e = (baseline[id] - baseline_mean) - (truth[id] - step.mean);
    step.baseline_error_inf_top = std::max(step.baseline_error_inf_top, std::abs(e));
    low = i == 0 ? e : std::min(low, e);
    high = i == 0 ? e : std::max(high, e);
  }
  step.baseline_pairwise = high - low;  // the largest error of a difference of two logits
  step.baseline_kl = divergence_of(step, baseline, logsumexp_of(baseline, vocab));
}

void check_finite(const Logits& logits, const char* who) {
  if (std::all_of(logits.begin(), logits.end(), [](float z) { return std::isfinite(z); })) return;
  throw Error(ErrorKind::kInvalidReference,
              fmt::format("live reference: logits of {}: found NaN or Inf", who));
}

class LiveCapture {
 public:
  // `baseline` may be null; the steps then hold no baseline token.
  LiveCapture(Engine& truth, Engine* baseline, Engine& head_fp32, int vocab)
      : truth_(truth), baseline_(baseline), head_fp32_(head_fp32), vocab_(vocab) {}

  ReferencePrompt capture(const std::string& name, const std::vector<int32_t>& ids, int steps,
                          const std::function<bool()>& go_on) {
    ReferencePrompt prompt;
    prompt.name = name;
    prompt.ids = ids;
    for (Engine* engine : {&truth_, baseline_, &head_fp32_}) {
      if (engine != nullptr) start_prompt(*engine, prompt);
    }
    for (int start = 0; start < steps && go_on(); start += kMaxLogitSteps) {
      add_chunk(prompt, std::min(kMaxLogitSteps, steps - start));
    }
    return prompt;
  }

  int flips() const { return flips_; }

 private:
  void add_chunk(ReferencePrompt& prompt, int count) {
    const auto vocab = static_cast<size_t>(vocab_);
    Logits of_truth(vocab * static_cast<size_t>(count), std::nanf(""));
    Logits of_head = of_truth;
    const int32_t input = prompt.steps.empty() ? prompt.ids.back() : prompt.steps.back().token;
    const std::vector<int32_t> path = truth_.decode(count, nullptr, of_truth.data());
    check_finite(of_truth, "the truth");

    // Both baselines walk the truth's path: their inputs are its tokens, one step behind.
    std::vector<int32_t> inputs(path.begin(), path.end());
    inputs.insert(inputs.begin(), input);
    std::vector<int32_t> baseline_ids(static_cast<size_t>(count), -1);
    if (baseline_ != nullptr) {
      baseline_->set_pending(input);
      Logits of_baseline(of_truth.size(), std::nanf(""));
      baseline_ids = baseline_->decode(count, inputs.data(), of_baseline.data());
      check_finite(of_baseline, "the baseline");
    }
    head_fp32_.set_pending(input);
    const std::vector<int32_t> head_ids = head_fp32_.decode(count, inputs.data(), of_head.data());
    check_finite(of_head, "the fp32-head baseline");
    for (int i = 0; i < count; ++i) {
      const float* logits = of_truth.data() + vocab * static_cast<size_t>(i);
      const int position =
          static_cast<int>(prompt.ids.size()) - 1 + static_cast<int>(prompt.steps.size());
      ReferenceStep step = truth_step(logits, vocab_, position);
      if (step.token != path[static_cast<size_t>(i)]) {
        throw Error(
            ErrorKind::kInvalidReference,
            fmt::format(
                "live reference: the truth emitted {} at position {}, but its logits say {}",
                path[static_cast<size_t>(i)], position, step.token));
      }
      step.baseline_token = baseline_ids[static_cast<size_t>(i)];
      add_baseline_errors(logits, of_head.data() + vocab * static_cast<size_t>(i), vocab_, step);
      flips_ += head_ids[static_cast<size_t>(i)] != step.token;
      prompt.steps.push_back(std::move(step));
    }
  }

  Engine& truth_;
  Engine* baseline_;
  Engine& head_fp32_;
  int vocab_;
  int flips_ = 0;
};

}  // namespace

ReferencePrompt capture_path(Engine& truth, Engine& head_fp32, int vocab, const std::string& name,
                             const std::vector<int32_t>& ids, int steps,
                             const std::function<bool()>& go_on) {
  return LiveCapture(truth, nullptr, head_fp32, vocab).capture(name, ids, steps, go_on);
}

GreedyReference capture_live(Engine& truth, Engine& baseline, Engine& head_fp32, int vocab,
                             const std::vector<std::vector<int32_t>>& prompts, int steps) {
  if (prompts.empty() || steps <= 0 || vocab <= 0) {
    throw Error(ErrorKind::kBadInput,
                fmt::format("live reference: {} prompts, {} steps, vocabulary {}; wanted all > 0",
                            prompts.size(), steps, vocab));
  }
  GreedyReference reference;
  reference.model_name = "live";
  reference.sketch_seed = kLiveSketchSeed;
  reference.sketch_projections = kLiveProjections;
  LiveCapture capture(truth, &baseline, head_fp32, vocab);
  for (size_t i = 0; i < prompts.size(); ++i) {
    reference.prompts.push_back(
        capture.capture(fmt::format("live {}", i + 1), prompts[i], steps, [] { return true; }));
  }
  reference.baseline_flips = capture.flips();
  for (const ReferencePrompt& p : reference.prompts) {
    for (const ReferenceStep& s : p.steps) {
      reference.pairwise_d = std::max(reference.pairwise_d, s.baseline_pairwise);
    }
  }
  const double most = largest_d(reference.prompts);
  if (!(reference.pairwise_d <= most)) {
    throw Error(
        ErrorKind::kInvalidReference,
        fmt::format("live reference: D {:.3g}, wanted <= {}: bf16 errors of these weights on this "
                    "text are too large to calibrate near ties (a wrong config, or a text far from "
                    "what the model knows: try other --ids, or fewer tokens)",
                    reference.pairwise_d, most));
  }
  for (ReferencePrompt& p : reference.prompts) {
    bool strict = true;
    for (ReferenceStep& s : p.steps) {
      const double tau = reference.pairwise_d + bf16_step(s.max_abs);
      s.decided = s.margin > tau;
      strict = strict && s.margin > 2 * tau;
    }
    p.set = strict ? "strict" : "near-tie";
  }
  return reference;
}

}  // namespace mkbench
