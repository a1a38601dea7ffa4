#include "harness/judge/replay.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "harness/judge/findings.h"
#include "harness/judge/ratios.h"
#include "references/oracle.h"

namespace mkbench {
namespace {

constexpr size_t kShownIds = 5;

std::vector<ScoredId> best_ids(const std::vector<float>& logits,
                               const std::function<std::string(int32_t)>& text_of) {
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const size_t shown = std::min(kShownIds, order.size());
  // NaN counts as the smallest, because NaN itself has no place in an order.
  const auto value = [&](int32_t id) {
    const float z = logits[static_cast<size_t>(id)];
    return std::isnan(z) ? -INFINITY : z;
  };
  std::partial_sort(
      order.begin(), order.begin() + static_cast<std::ptrdiff_t>(shown), order.end(),
      [&](int32_t a, int32_t b) { return value(a) != value(b) ? value(a) > value(b) : a < b; });
  std::vector<ScoredId> best;
  for (size_t i = 0; i < shown; ++i) {
    const int32_t id = order[i];
    best.push_back({id, logits[static_cast<size_t>(id)], text_of ? text_of(id) : ""});
  }
  return best;
}

// A run without logits and without forced ids, from the prompt's beginning. `late_id` replaces the
// prompt's last id.
std::vector<int32_t> free_run(Engine& engine, ReferencePrompt prompt,
                              const std::optional<int32_t>& late_id, int tokens) {
  const bool told_late = late_id && engine.capabilities().late_id;
  if (late_id && !told_late) prompt.ids.back() = *late_id;
  start_prompt(engine, prompt);
  return told_late ? engine.decode_late(*late_id, tokens) : engine.decode(tokens);
}

// The id of step `step` in a free run. With a late id another run precedes it, as in timing: one
// that begins with the prompt's own last id.
int32_t free_run_id(Engine& engine, const ReferencePrompt& prompt, int step,
                    const ReplayOptions& options) {
  if (options.late_id) free_run(engine, prompt, prompt.ids.back(), options.free_tokens);
  std::vector<int32_t> ids = free_run(engine, prompt, options.late_id, options.free_tokens);
  if (const int more = step + 1 - options.free_tokens; more > 0) {
    const std::vector<int32_t> behind = engine.decode(more);
    ids.insert(ids.end(), behind.begin(), behind.end());
  }
  return static_cast<size_t>(step) < ids.size() ? ids[static_cast<size_t>(step)] : -1;
}

// The prompt that the engine's first step sees: the late id, if there is one, is its last id.
ReferencePrompt with_late_id(ReferencePrompt prompt, const ReplayOptions& options) {
  if (options.late_id) prompt.ids.back() = *options.late_id;
  return prompt;
}

StepVerdict match_of(const FailedStep& failed, const std::vector<float>& truth, bool logits_bf16) {
  if (failed.found == failed.expected) return StepVerdict::kExact;
  if (failed.found < 0 || static_cast<size_t>(failed.found) >= truth.size())
    return StepVerdict::kWrong;
  const double gap = double{truth[static_cast<size_t>(failed.expected)]} -
                     double{truth[static_cast<size_t>(failed.found)]};
  const double tau = tau_of(truth, failed.pairwise_d, logits_bf16);
  return gap <= tau ? StepVerdict::kTie : StepVerdict::kWrong;
}

}  // namespace

FailedStep observed_step(const ReferencePrompt& prompt, int step, int32_t found,
                         const std::vector<float>& logits, const ReplayOptions& options) {
  const ReferenceStep& reference = prompt.steps[static_cast<size_t>(step)];
  FailedStep failed;
  failed.prompt = prompt.name;
  failed.position = reference.position;
  failed.prompt_ids = prompt.ids;
  for (int t = 0; t < step; ++t)
    failed.forced_ids.push_back(prompt.steps[static_cast<size_t>(t)].token);
  failed.free_tokens = options.free_tokens;
  failed.late_id = options.late_id;
  failed.expected = reference.token;
  failed.found = found;
  failed.verdict = found == reference.token ? StepVerdict::kExact : StepVerdict::kWrong;
  failed.margin = reference.margin;
  failed.pairwise_d = options.pairwise_d;
  for (size_t i = 0; i < std::min(kShownIds, reference.top_ids.size()); ++i) {
    const int32_t id = reference.top_ids[i];
    failed.expected_top.push_back(
        {id, reference.top_logits[i], options.text_of ? options.text_of(id) : ""});
  }
  if (!logits.empty()) failed.found_top = best_ids(logits, options.text_of);
  failed.baseline_error_norm = reference.baseline_error_norm;
  failed.error_limit = options.error_limit;
  return failed;
}

FailedStep replay_step(const LocaliseEngines& engines, const ReferencePrompt& prompt, int step,
                       const ReplayOptions& options, LastStep* shown) {
  LastStep last;
  const std::string localised =
      localise(engines, options.layers, options.vocab, with_late_id(prompt, options), step, &last);
  const int32_t found =
      options.free_tokens > 0 ? free_run_id(engines.candidate, prompt, step, options) : last.id;
  FailedStep failed = observed_step(prompt, step, found, last.candidate, options);
  failed.localised = localised;
  failed.error_by_layer = std::move(last.by_layer);
  failed.expected = argmax_lowest(last.truth);
  failed.expected_top = best_ids(last.truth, options.text_of);
  if (failed.expected_top.size() > 1)
    failed.margin = failed.expected_top[0].logit - failed.expected_top[1].logit;
  failed.verdict = match_of(failed, last.truth, options.logits_bf16);
  failed.baseline_error_norm =
      std::max(centred_distance(last.baseline, last.truth), failed.baseline_error_norm);
  if (!last.candidate.empty()) failed.error_norm = centred_distance(last.candidate, last.truth);
  if (shown != nullptr) *shown = std::move(last);
  return failed;
}

FailedStep repeat_step(const LocaliseEngines& engines, const FailedStep& observed,
                       ReplayOptions options, LastStep* last) {
  options.pairwise_d = observed.pairwise_d;
  options.free_tokens = observed.free_tokens;
  options.late_id = observed.late_id;
  options.error_limit = observed.error_limit;
  const ReferencePrompt prompt = prompt_of(observed);
  FailedStep again =
      replay_step(engines, prompt, static_cast<int>(prompt.steps.size()) - 1, options, last);
  if (again.found == observed.found) return again;
  again.localised += fmt::format("; when it was judged the id was {}, in another run {}",
                                 observed.found, again.found);
  again.found = observed.found;
  again.verdict = observed.verdict;
  return again;
}

Verdict verdict_of(const FailedStep& step, double limit) {
  const bool own_argmax = step.found_top.empty() || step.found == -1 ||
                          step.found == step.found_top.front().id ||
                          !std::isfinite(step.error_norm);
  if (!own_argmax && step.free_tokens == 0) return Verdict::kFailSelf;
  if (step.verdict == StepVerdict::kWrong) return Verdict::kFailToken;
  if (!own_argmax && !step.late_id) return Verdict::kNondeterministic;
  const double most = step.error_limit.value_or(std::max(limit, 0.0) * step.baseline_error_norm);
  const bool judged = step.error_limit ? *step.error_limit > 0 : limit > 0;
  // NaN exceeds every limit.
  if (judged && !(step.error_norm <= most)) return Verdict::kFailFidelity;
  return Verdict::kPass;
}

ReferencePrompt prompt_of(const FailedStep& step) {
  ReferencePrompt prompt;
  prompt.name = step.prompt;
  prompt.ids = step.prompt_ids;
  const int first = static_cast<int>(step.prompt_ids.size()) - 1;
  for (const int32_t id : step.forced_ids) {
    prompt.steps.emplace_back();
    prompt.steps.back().token = id;
  }
  prompt.steps.emplace_back();
  for (size_t t = 0; t < prompt.steps.size(); ++t)
    prompt.steps[t].position = first + static_cast<int>(t);
  return prompt;
}

}  // namespace mkbench
