#include "harness/flow/trials.h"

#include <fmt/format.h>

#include <algorithm>

#include "harness/flow/gate.h"
#include "harness/flow/interrupt.h"
#include "harness/flow/only.h"
#include "harness/flow/timed_truth.h"
#include "harness/judge/isolation.h"
#include "harness/judge/localise.h"
#include "harness/judge/repeats.h"
#include "harness/judge/replay.h"
#include "harness/judge/sweep.h"
#include "references/base/error.h"
#include "references/model_row.h"
#include "references/synthetic.h"

namespace mkbench {
namespace {

// The sweep tests so many consecutive cache lengths, and beyond them only lengths around edges. On
// a CPU the truth of one length takes 5 ms, so the number is half as large.
constexpr int kSteppedLengths = 1025, kSteppedLengthsOnCpu = 513;
// Lengths swept for lag sets whose closed form begins at a large depth.
constexpr int kFarSteppedLengths = 64;
// A CPU needs a second a token for full-size weights. Above this size its sweep ends early, and the
// report says so.
constexpr int64_t kParametersOfQuickSweep = 100'000'000;
constexpr int kShortSweep = 33;

int32_t emitted_at(const ParityReport& report, const std::string& prompt, int position) {
  for (const ParityRow& row : report.rows) {
    if (row.prompt == prompt && row.position == position) return row.engine_id;
  }
  return -1;
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

ParityOptions Trials::options() const {
  ParityOptions options;
  options.vocab = weights_.config.shape.vocab;
  options.layers = weights_.config.shape.layers;
  return options;
}

std::unique_ptr<Engine> Trials::make(const std::string& name, int context,
                                     const ModelWeights& weights) {
  check_stop();
  return services_.make_engine(
      {.name = name, .max_context = context, .fault = fault_of(job_, name)}, weights);
}

void Trials::run(Engine& engine, const std::string& name,
                 const std::vector<ReferencePrompt>& prompts, ParityReport& report) {
  const auto stop = [this] { check_stop(); };
  const int vocab = weights_.config.shape.vocab;
  Findings findings;
  watch_.begin("repeats", name, &engine);
  report.repeats_sha256 = judge_repeats(engine, prompts, vocab, stop, findings);
  watch_.begin("isolation", name, &engine);
  judge_isolation(
      engine, prompts.front(), prompts.back(), vocab,
      [&] { return make(name, max_context_, weights_); }, stop, findings);
  engine.audit();
  watch_.begin("sweep", name, nullptr);
  sweep(name, findings);
  watch_.end();
  findings.conclude(report);
}

// The longest cache that fits into memory and is swept in reasonable time.
int Trials::longest_sweep() const {
  const ModelConfig& config = weights_.config;
  const bool slow =
      !job_.cuda() && config.shape.parameters(config.tie_word_embeddings) > kParametersOfQuickSweep;
  if (slow) return kShortSweep;
  int longest = config.max_positions;
  const auto fits = [&](int context) {
    int64_t needed = 0;
    for (const CaseEngine& engine : job_.engines) {
      if (!engine.candidate) continue;
      needed = std::max(
          needed, services_.bytes({.name = engine.name, .max_context = context}, weights_.config));
    }
    for (const char* name : {kTruthName, kHeadFp32Name})
      needed += services_.bytes({.name = name, .max_context = context}, weights_.config);
    const int64_t free = services_.free_bytes();
    return free <= 0 || needed <= free;
  };
  while (longest > max_context_ && !fits(longest)) longest /= 2;
  return longest;
}

int Trials::stepped_lengths() const {
  return !job_.cuda() ? kSteppedLengthsOnCpu : kSteppedLengths;
}

void Trials::sweep(const std::string& name, Findings& findings) {
  covered_.clear();
  if (weights_.lagset.empty()) {
    sweep_live(name, findings);
  } else if (const ModelRow* row = find_model(job_.model); row && !row->lagset.empty()) {
    if (row->lagset == weights_.lagset) {
      sweep_closed_form(name, weights_, findings);
    } else {
      sweep_closed_form(name, services_.load(job_.model, 0), findings);
    }
  } else {
    // Long lags make a token depend on rows far back. Each lag set is swept from the depth at which
    // its closed form begins.
    sweep_closed_form(name, weights_, findings);
    for (const char* lagset : {"deep", "far"}) {
      if (synthetic_min_depth(lagset) + kFarSteppedLengths > longest_sweep()) continue;
      sweep_closed_form(name, services_.load(fmt::format("synthetic:{}", lagset), 0), findings);
    }
  }
  findings.note(Check::kSweep, fmt::format("{}", fmt::join(covered_, "; ")));
}

void Trials::sweep_closed_form(const std::string& name, const ModelWeights& weights,
                               Findings& findings) {
  const int longest = longest_sweep(), depth = synthetic_min_depth(weights.lagset);
  if (depth >= longest) {
    covered_.push_back(
        fmt::format("none of '{}': its closed form begins at {} rows, the longest "
                    "cache here holds {}",
                    weights.lagset, depth + 1, longest));
    return;
  }
  const int steps = depth < stepped_lengths() ? stepped_lengths() - depth : kFarSteppedLengths;
  const SweepTruth truth = closed_form_sweep(weights.lagset, steps, longest);
  const std::unique_ptr<Engine> engine = make(name, longest, weights);
  const WatchEnd end(watch_);
  watch_.begin("sweep", name, engine.get());
  judge_sweep(
      *engine, truth, options(), [this] { check_stop(); }, findings);
  covered_.push_back(fmt::format("{} to {} rows step by step and {} prefills up to {} against {}",
                                 depth + 1, depth + truth.path.steps.size(), truth.jumps.size(),
                                 longest, truth.source));
}

void Trials::sweep_live(const std::string& name, Findings& findings) {
  const int longest = longest_sweep();
  const auto stop = [this] { check_stop(); };
  SweepTruth truth;
  {
    const std::unique_ptr<Engine> t = make(kTruthName, longest, weights_),
                                  head = make(kHeadFp32Name, longest, weights_);
    const WatchEnd end(watch_);
    watch_.begin("sweep", kTruthName, t.get());
    const std::vector<int32_t> start = {timed_prompt(job_, weights_.config.shape).front()};
    truth =
        live_sweep(*t, *head, weights_.config.shape.vocab, start, stepped_lengths(), longest, stop);
  }
  const std::unique_ptr<Engine> engine = make(name, longest, weights_);
  const WatchEnd end(watch_);
  watch_.begin("sweep", name, engine.get());
  judge_sweep(*engine, truth, options(), stop, findings);
  covered_.push_back(fmt::format("1 to {} rows step by step and {} prefills up to {} against {}",
                                 truth.path.steps.size(), truth.jumps.size(), longest,
                                 truth.source));
}

void Trials::localise_failure(Engine& engine, const std::string& name, Engine& baseline,
                              const std::vector<GreedyReference>& references,
                              ParityReport& report) {
  if (report.verdict != Verdict::kFailFidelity && report.verdict != Verdict::kFailToken) return;
  const auto [reference, prompt, step] =
      find_step(references, report.suspect_prompt, report.suspect_position);
  if (prompt == nullptr) {
    report.localised = "not localised: no step of a prompt is wrong";
    return;
  }
  watch_.begin("localising", name, &engine);
  try {
    const std::unique_ptr<Engine> truth = make(kTruthName, max_context_, weights_);
    const WatchEnd end(watch_);
    report.failed_step =
        replay_step({.candidate = engine, .truth = *truth, .baseline = baseline}, *prompt, step,
                    replay_options(*reference, name, weights_.config.shape));
    report.localised = report.failed_step->localised;
    name_step(job_, weights_, name, !reference->path.empty(), *report.failed_step);
  } catch (const Error& error) {
    report.localised = fmt::format("not localised: {}", error.what());
  }
  const int32_t emitted = emitted_at(report, prompt->name, report.suspect_position);
  const bool closed_form = !weights_.lagset.empty() && prompt->set == "strict";
  if (closed_form && emitted != prompt->steps[static_cast<size_t>(step)].token)
    report.localised += "; " + localise_lag(weights_.lagset, *prompt, step, emitted);
}

}  // namespace mkbench
