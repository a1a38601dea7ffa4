#include "harness/flow/forecast.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "harness/engines/plugin_file.h"
#include "harness/flow/interrupt.h"
#include "harness/flow/replication.h"
#include "harness/flow/state_receipt.h"
#include "harness/flow/timed_truth.h"
#include "harness/judge/parity.h"
#include "harness/judge/repeats.h"
#include "harness/judge/sweep.h"
#include "harness/measure/warm_up.h"
#include "references/base/error.h"
#include "references/model_row.h"
#include "references/snapshot.h"

namespace mkbench {
namespace {

constexpr int kContext = 192;  // context that the measured engines allocate
constexpr int kJudgedSteps = 16, kTimedSteps = 16;
constexpr size_t kMostTries = 5;
constexpr int64_t kSlowBytes = 100'000'000;  // a step that reads more is slow on a CPU
constexpr double kEnoughS = 0.6, kSlowS = 0.5, kTooSlowS = 1.5;
// Assumed time of judging one logit of a step if no reference allows a measurement: 20 ms for
// 152,000 logits, an estimate.
constexpr double kJudgedLogitS = 1.3e-7;

double seconds_of(const Now& now, const std::function<void()>& work) {
  const double begin = now();
  work();
  return now() - begin;
}

int steps_of(const std::vector<ReferencePrompt>& prompts) {
  return std::accumulate(prompts.begin(), prompts.end(), 0,
                         [](int n, const ReferencePrompt& p) { return n + std::ssize(p.steps); });
}

// Time to prefill each prompt once.
double prefills_s(const StepPace& pace, const std::vector<ReferencePrompt>& prompts) {
  return std::accumulate(prompts.begin(), prompts.end(), 0.0,
                         [&](double s, const ReferencePrompt& p) {
                           return s + pace.prefill_s + pace.rows_s(std::ssize(p.ids) - 1);
                         });
}

// The first steps of the reference's shortest prompt.
GreedyReference cut(const GreedyReference& reference, int steps) {
  GreedyReference part = reference;
  part.prompts = {*std::min_element(reference.prompts.begin(), reference.prompts.end(),
                                    [](const ReferencePrompt& a, const ReferencePrompt& b) {
                                      return a.ids.size() < b.ids.size();
                                    })};
  ReferencePrompt& prompt = part.prompts.front();
  prompt.steps.resize(std::min(prompt.steps.size(), static_cast<size_t>(steps)));
  return part;
}

// Median time of `work` over up to kMostTries runs, or as many as fit into kEnoughS. The first run
// compiles kernels: it counts only if another run would take too long.
double settled_seconds(const Now& now, const std::function<void()>& work) {
  const double first = seconds_of(now, work);
  if (first > kTooSlowS) return first;
  std::vector<double> tries;
  double spent = 0;
  while (tries.size() < kMostTries && (tries.empty() || spent < kEnoughS)) {
    tries.push_back(seconds_of(now, work));
    spent += tries.back();
  }
  const auto middle = tries.begin() + static_cast<std::ptrdiff_t>(tries.size() / 2);
  std::nth_element(tries.begin(), middle, tries.end());
  return *middle;
}

// Times decode() and prefill(). Two prompt lengths separate the cost of a pass from that of a row:
// some engines prefill all rows in one pass, others pay for each row.
void measure_steps(const Now& now, Engine& engine, const std::vector<int32_t>& ids, size_t fewer,
                   StepPace& pace) {
  const auto start_with = [&](size_t count) {
    engine.reset();
    engine.prefill(std::span(ids).first(count));
  };
  const auto start = [&] { start_with(ids.size()); };
  const double prefill_s = settled_seconds(now, start);
  if (fewer < ids.size()) {
    const double fewer_s = settled_seconds(now, [&] { start_with(fewer); });
    pace.row_s = std::max(0.0, prefill_s - fewer_s) / static_cast<double>(ids.size() - fewer);
    pace.prefill_s = std::max(0.0, prefill_s - pace.rows_s(std::ssize(ids) - 1));
  } else {
    pace.row_s = prefill_s / static_cast<double>(ids.size() - 1);
  }
  start();
  pace.step_s = seconds_of(now, [&] { engine.decode(1); });
  if (pace.step_s > kSlowS) return;
  const double all_s = settled_seconds(now, [&] {
    start();
    engine.decode(kTimedSteps);
  });
  pace.step_s = std::max(all_s - prefill_s, 0.0) / kTimedSteps;
}

// Times judge_parity() on the first steps of a reference.
void measure_judging(const Now& now, Engine& engine, const std::string& name,
                     const GreedyReference& reference, const ModelShape& shape, StepPace& pace) {
  if (pace.step_s > kSlowS) return;
  ParityOptions options;
  options.precision = precision_of(name, engine.capabilities());
  options.limits = limits_of(options.precision);
  options.vocab = shape.vocab;
  options.layers = shape.layers;
  options.logits_bf16 = rounds_logits(name);
  options.is_baseline = run_of(name).engine == kJudgeName;
  options.one_prompt = true;
  const auto judged = [&](int steps) {
    return settled_seconds(now, [&] { judge_parity(engine, cut(reference, steps), options); });
  };
  const double one = judged(1);
  const double step = std::max(0.0, judged(kJudgedSteps) - one) / (kJudgedSteps - 1);
  pace.prompt_s = std::max(0.0, one - step - 3 * prefills_s(pace, cut(reference, 1).prompts));
  pace.logits_s = std::max(pace.step_s, step - 2 * pace.step_s);
}

// Times a forced decode of the truth, which runs many steps of a path in one pass.
void measure_pass(const Now& now, Engine& engine, const std::vector<int32_t>& ids, int vocab,
                  StepPace& pace) {
  std::vector<float> logits(static_cast<size_t>(kMaxLogitSteps) * static_cast<size_t>(vocab));
  std::vector<int32_t> forced(kMaxLogitSteps, ids.front());
  const double s = settled_seconds(now, [&] {
    engine.reset();
    engine.prefill(ids);
    engine.decode(kMaxLogitSteps, forced.data(), logits.data());
  });
  pace.pass_row_s =
      std::max(0.0, s - pace.prefill_s - pace.rows_s(std::ssize(ids) - 1)) / kMaxLogitSteps;
}

// Steps that an engine decodes in a timed case: warm-up, samples, state receipts of each process's
// first block and of a share of the others. A warm-up by time is counted in seconds.
struct TimedSteps {
  double bare = 0, with_logits = 0, prefills = 0, warm_up_s = 0;
  int processes = 1;
};

// A warm-up that settles at once takes two windows; the short run before them is neglected.
constexpr double kSettledWarmUpS = 2 * kWarmWindowS;

// `blocks` counts the blocks of all processes.
TimedSteps timed_steps(const CaseJob& job, int blocks) {
  const int n = job.n_prompt > 0 ? kPrefillCheckTokens : job.n_gen;
  TimedSteps steps;
  steps.processes = process_count(job);
  const double processes = steps.processes;
  steps.bare = static_cast<double>(n) * blocks * (job.n_prompt > 0 ? 2 : 1);  // twice for KV rows
  if (job.warmup_by_time)
    steps.warm_up_s = kSettledWarmUpS * processes;
  else
    steps.bare += static_cast<double>(n) * job.warmup * processes;
  steps.prefills = processes;
  if (job.n_prompt > 0) {
    steps.prefills += blocks;
  } else {
    const double always = job.one_at_a_time ? 1 : processes;
    const double receipts = always + (blocks - always) / kReceiptShare;
    steps.with_logits = receipts * (n + 2 * kStateSteps);
  }
  return steps;
}

// An estimate: the ceiling searches for its pattern when it first opens, and its samples are short.
double ceiling_seconds(const CaseJob& job, int blocks) {
  constexpr double kSearchS = 4, kOpenS = 1.5, kSampleS = 0.1;
  if (!job.no_ceiling.empty()) return 0;
  return kSearchS + kOpenS * process_count(job) + kSampleS * blocks;
}

// Whether the run takes hardly more steps than measuring its pace would.
bool is_short(const CaseJob& job, const ModelShape& shape, const CaseReferences& references) {
  constexpr double kFewSteps = 2500, kFewBytes = 1e11;  // bytes read by all steps
  if (references.live || job.whole_parity) return false;
  double judged = 0;
  for (const GreedyReference& reference : references.all) judged += steps_of(reference.prompts);
  if (job.blocks_by_time) return false;
  const TimedSteps timed = timed_steps(job, job.blocks);
  const double engines = static_cast<double>(job.engines.size());
  const double steps = 3 * (engines + 1) * judged + engines * (timed.bare + 2 * timed.with_logits);
  return steps < kFewSteps && steps * static_cast<double>(shape.bytes_per_step(0)) < kFewBytes;
}

bool is_known(const std::map<std::string, StepPace>& paces, const std::string& name,
              Forecast& forecast) {
  if (paces.contains(name)) return true;
  if (std::ranges::count(forecast.unknown, name) == 0) forecast.unknown.push_back(name);
  return false;
}

StepPace pace_or_none(const std::map<std::string, StepPace>& paces, const std::string& name) {
  const auto found = paces.find(name);
  return found != paces.end() ? found->second : StepPace{};
}

// Extra time of a step at `depth`, because it also reads `depth` KV rows: the fastest engine's time
// for that many bytes. Scaling an engine's own step would overestimate one whose launches take
// longer than its reads.
double depth_s(const ModelShape& shape, const std::map<std::string, StepPace>& paces, int depth) {
  const auto bytes = [&](int rows) { return static_cast<double>(shape.bytes_per_step(rows)); };
  if (bytes(0) <= 0) return 0;
  double fastest_s = 0;
  for (const auto& [name, pace] : paces) {
    if (pace.step_s > 0 && (fastest_s == 0 || pace.step_s < fastest_s)) fastest_s = pace.step_s;
  }
  return fastest_s * (bytes(depth) / bytes(0) - 1);
}

}  // namespace

void Forecaster::measure(const CaseJob& job, const CaseServices& services, bool whole) {
  if (models_.contains(job.model.name)) return;
  const Now now = clock_of(services);
  Measured model;
  ModelWeights weights;
  model.load_s =
      seconds_of(now, [&] { weights = services.load(parity_model(job.model), first_depth(job)); });
  model.shape = weights.config.shape;
  model.max_positions = weights.config.max_positions;
  model.references = find_case_references(job, services, weights);
  if (!whole && is_short(job, model.shape, model.references)) return;
  const GreedyReference* with_logits = nullptr;
  for (const GreedyReference& reference : model.references.all) {
    if (!reference.token_only && !reference.prompts.empty()) with_logits = &reference;
  }
  // Prompts of 1, 5, 17 and 64 ids; takes 64, or 5 where a prefill may cost a step per row.
  const bool slow = !job.cuda() && model.shape.bytes_per_step(0) > kSlowBytes;
  const auto prompts = live_parity_prompts(job, model.shape, {});
  const std::vector<int32_t>& ids = prompts.at(slow ? 1 : 3);
  int context = kContext;
  if (with_logits != nullptr) {
    const GreedyReference part = cut(*with_logits, kJudgedSteps);
    context = std::max(context, static_cast<int>(part.prompts.front().ids.size()) + kJudgedSteps);
  }
  context = std::min(context, model.max_positions);
  std::vector<std::string> names;
  for (const CaseEngine& engine : job.engines) {
    if (whole || !is_file_engine(engine.name)) names.push_back(engine.name);
  }
  const JudgeRuns runs = judge_runs(job);
  names.insert(names.end(), {runs.head_fp32, runs.truth});
  for (const std::string& name : names) {
    if (services.stop()) throw Interrupted{};
    if (model.paces.contains(name)) continue;
    const bool is_truth = name == runs.truth;
    if (is_truth && is_analytic(job.model.row) && !job.whole_parity) continue;
    try {
      StepPace pace;
      std::unique_ptr<Engine> engine;
      pace.open_s = seconds_of(now, [&] {
        engine = services.make_engine({.name = name, .max_context = context}, weights);
      });
      measure_steps(now, *engine, ids, prompts.at(1).size(), pace);
      pace.logits_s = pace.step_s + kJudgedLogitS * model.shape.vocab;
      if (is_truth)
        measure_pass(now, *engine, ids, model.shape.vocab, pace);
      else if (with_logits != nullptr && engine->capabilities().logits)
        measure_judging(now, *engine, name, *with_logits, model.shape, pace);
      model.paces[name] = pace;
      if (name == runs.judge) model.paces[runs.head_fp32] = pace;  // alike but for the last matmul
    } catch (const Error& error) {  // the case meets it too, and turns it into a verdict
      model.failed[name] = {verdict_of(error.kind()), name + ": " + error.what()};
    }
  }
  models_[job.model.name] = std::move(model);
}

bool Forecaster::takes_over(const Model& model) const {
  const auto found = models_.find(model.name);
  return found != models_.end() && may_take_over(model.row, found->second.references.live);
}

bool Forecaster::learn(const CaseJob& job, const std::string& engine, const SeenPace& seen) {
  const auto found = models_.find(job.model.name);
  if (found == models_.end() || !has_engine(job, engine) || seen.judged_s + seen.token_s <= 0)
    return false;
  Measured& model = found->second;
  if (model.paces.contains(engine) && !model.learned.contains(engine)) return false;
  model.paces.erase(engine);
  // A judged step is decoded with logits and without, and judging logits takes about as long for one
  // engine as for another.
  const auto judge = model.paces.find(judge_runs(job).judge);
  const double logits_s =
      judge != model.paces.end() ? judge->second.logits_s : kJudgedLogitS * model.shape.vocab;
  StepPace pace;
  pace.open_s = seen.open_s;
  pace.step_s = std::clamp((seen.least_s - logits_s) / 2, seen.least_s / 30, seen.least_s / 3);
  if (seen.token_s > 0) {
    const double deeper_s = depth_s(model.shape, model.paces, first_depth(job));
    pace.step_s = std::max(seen.token_s - deeper_s, 0.1 * seen.token_s);
  }
  pace.logits_s =
      std::max(seen.judged_s > 0 ? seen.judged_s - 2 * pace.step_s : logits_s, pace.step_s);
  model.paces[engine] = pace;
  model.learned.insert(engine);
  return true;
}

Forecast Forecaster::forecast(const CaseJob& job) const {
  Forecast result;
  const auto found = models_.find(job.model.name);
  if (found == models_.end()) {
    for (const CaseEngine& engine : job.engines) result.unknown.push_back(engine.name);
    return result;
  }
  const Measured& model = found->second;
  for (const auto& [name, end] : model.failed)
    if (has_engine(job, name) || name == judge_runs(job).truth) result.refusals.push_back(end);
  if (!job.judged) result.judging_s = judging(job, model, result);
  if (job.whole_parity) return result;
  result.timing_s = timing(job, model, result);
  if (!is_analytic(job.model.row)) result.scoring_s = scoring(job, model);
  return result;
}

// An engine walks the prompts freely, with logits, and forced without; the fp32 head with logits.
double Forecaster::judging(const CaseJob& job, const Measured& model, Forecast& forecast) const {
  double seconds = model.load_s;
  std::vector<GreedyReference> references = model.references.all;
  const JudgeRuns runs = judge_runs(job);
  const auto pace_of = [&](const std::string& name) { return pace_or_none(model.paces, name); };
  if (model.references.live) {
    GreedyReference live;
    for (const auto& ids : live_parity_prompts(job, model.shape, references)) {
      live.prompts.emplace_back();
      live.prompts.back().ids = ids;
      live.prompts.back().steps.resize(kLiveSteps);
    }
    const double steps = steps_of(live.prompts);
    for (const std::string& name : {runs.truth, runs.head_fp32, runs.judge})
      seconds += pace_of(name).logits_s * steps + prefills_s(pace_of(name), live.prompts);
    seconds += pace_of(runs.truth).open_s;
    references.insert(references.begin(), live);
  }
  const auto judge = [&](const std::string& name, bool baseline) {
    if (!is_known(model.paces, name, forecast)) return 0.0;
    const StepPace& pace = model.paces.at(name);
    const bool once = name == runs.head_fp32;
    double judged_s = 0;
    for (const GreedyReference& reference : references) {
      if (once && reference.token_only) continue;
      const GreedyReference part = baseline ? baseline_part(reference) : reference;
      judged_s += steps_of(part.prompts) * (pace.judged_s() - (once ? pace.step_s : 0)) +
                  (once ? 1 : 3) * prefills_s(pace, part.prompts) +
                  static_cast<double>(part.prompts.size()) * pace.prompt_s;
    }
    return judged_s;
  };
  for (const CaseEngine& engine : job.engines) {
    if (const auto at = model.paces.find(engine.name); at != model.paces.end())
      seconds += at->second.open_s;
    const double prompts_s = judge(engine.name, engine.judges);
    seconds += prompts_s;
    if (engine.judges) seconds += pace_of(runs.head_fp32).open_s + judge(runs.head_fp32, true);
    if (!engine.candidate) continue;
    if (prompts_s > job.time_budget_s) {
      forecast.refusals.emplace_back(
          Verdict::kIncomplete,
          fmt::format("judging {} takes about {:.0f} s, --time-budget is {:g} s", engine.name,
                      prompts_s, job.time_budget_s));
    }
    if (job.whole_parity && model.paces.contains(engine.name))
      seconds += trials(job, model, model.paces.at(engine.name));
  }
  return seconds;
}

// Time of an engine's repeats, isolation and sweep, and of its fresh processes.
double Forecaster::trials(const CaseJob& job, const Measured& model, const StepPace& pace) const {
  constexpr double kProcessS = 2;  // to start the processes of a fresh run
  const int prompts = 2, isolated = 12;
  const double repeated_s = kRepeatSteps * pace.logits_s + pace.prefill_s + pace.rows_s(64);
  const int lengths = std::min(kNeededLengths, model.max_positions);
  double own_s = (prompts * (kRepeats + 1) + isolated) * repeated_s + lengths * pace.logits_s;
  for (const auto& [length, steps] : edge_prefills(lengths))
    own_s += pace.prefill_s + pace.rows_s(length) + steps * pace.logits_s;
  double truth_s = 0;
  for (const std::string& name : {judge_runs(job).truth, judge_runs(job).head_fp32})
    if (!is_analytic(job.model.row)) truth_s += lengths * pace_or_none(model.paces, name).logits_s;
  return std::min(own_s, job.time_budget_s) + std::min(truth_s, job.time_budget_s) +
         kFreshProcesses * (kProcessS + prompts * repeated_s);
}

// Blocks of the case, over all processes; with blocks by time, estimated from the known paces.
int Forecaster::planned_blocks(const CaseJob& job, const Measured& model) const {
  if (!job.blocks_by_time || job.one_at_a_time) return job.blocks;
  const double deeper_s = depth_s(model.shape, model.paces, first_depth(job));
  std::vector<double> sample_s;
  for (const CaseEngine& engine : job.engines) {
    const auto found = model.paces.find(engine.name);
    if (!engine.timed() || found == model.paces.end()) continue;
    const StepPace& pace = found->second;
    sample_s.push_back(job.n_prompt > 0 ? pace.prefill_s + pace.rows_s(job.n_prompt)
                                        : (pace.step_s + deeper_s) * job.n_gen);
  }
  return blocks_by_time(job, sample_s) * process_count(job);
}

double Forecaster::timing(const CaseJob& job, const Measured& model, Forecast& forecast) const {
  const int blocks = planned_blocks(job, model);
  const TimedSteps steps = timed_steps(job, blocks);
  const double deeper_s = depth_s(model.shape, model.paces, first_depth(job));
  const bool other = is_analytic(job.model.row);  // timing loads the weights with a salt
  double seconds = (other ? model.load_s : 0) + ceiling_seconds(job, blocks);
  const int tokens = job.n_prompt > 0 ? kPrefillCheckTokens : job.n_gen;
  for (const CaseEngine& engine : job.engines) {
    if (!engine.timed() || !is_known(model.paces, engine.name, forecast)) continue;
    const StepPace& pace = model.paces.at(engine.name);
    const double step_s = pace.step_s + deeper_s;
    // A state receipt runs the path once more, with logits that are not judged.
    seconds += step_s * (steps.bare + steps.with_logits) + steps.warm_up_s +
               steps.prefills * (pace.prefill_s + pace.rows_s(first_depth(job)));
    if (other || job.judged) seconds += pace.open_s;
    if (steps.processes > 1) seconds += pace.open_s * steps.processes;
    if (job.cuda()) seconds += pace.open_s + step_s * std::min(tokens, 64);
    if (const double call_s = step_s * tokens; call_s > timeout_s_) {
      forecast.refusals.emplace_back(
          Verdict::kTimeout, fmt::format("a decode of {} tokens by {} takes about {:.0f} s, "
                                         "--timeout is {:g} s",
                                         tokens, engine.name, call_s, timeout_s_));
    }
  }
  return seconds;
}

// Each block's late id starts a path to score: one for engines that round logits, one for others.
double Forecaster::scoring(const CaseJob& job, const Measured& model) const {
  const auto truth = model.paces.find(judge_runs(job).truth);
  if (truth == model.paces.end()) return 0;
  bool rounds = false, keeps = false;
  for (const CaseEngine& engine : job.engines) {
    if (engine.timed()) (rounds_logits(engine.name) ? rounds : keeps) = true;
  }
  const int tokens = job.n_prompt > 0 ? kPrefillCheckTokens : job.n_gen;
  const double paths = static_cast<double>(planned_blocks(job, model)) * (rounds + keeps);
  return truth->second.open_s + truth->second.prefill_s + truth->second.rows_s(first_depth(job)) +
         paths * tokens * truth->second.pass_row_s;
}

}  // namespace mkbench
