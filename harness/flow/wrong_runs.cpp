#include "harness/flow/wrong_runs.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "harness/flow/only.h"
#include "harness/judge/diagnosis.h"

namespace mkbench {
namespace {

ReferencePrompt prompt_of_run(const WrongRun& run, const TimedTruth& truth) {
  ReferencePrompt prompt;
  prompt.name = fmt::format("timed, late id {}", run.late_id);
  prompt.ids = truth.prompt;
  for (const int32_t id : run.path) {
    prompt.steps.emplace_back();
    prompt.steps.back().position =
        static_cast<int>(truth.prompt.size() - 1 + prompt.steps.size() - 1);
    prompt.steps.back().token = id;
  }
  prompt.steps.back().token = run.expected;
  return prompt;
}

}  // namespace

std::vector<WrongRun> closed_form_wrongs(const std::vector<TimedRun>& runs, const TruthOf& truth_of,
                                         const std::vector<Contestant>& contestants) {
  std::vector<WrongRun> wrong;
  for (const Contestant& c : contestants) {
    if (c.alive) continue;
    for (const TimedRun& run : runs) {
      if (run.sample.engine != c.name) continue;
      const TimedTruth& truth = truth_of(run.sample.process);
      const auto expected = *truth.expected(run.last_id, static_cast<int>(run.path.size()));
      const auto at = std::mismatch(run.path.begin(), run.path.end(), expected.begin());
      if (at.first == run.path.end()) continue;
      wrong.push_back({.engine = c.name,
                       .late_id = run.last_id,
                       .path = {run.path.begin(), at.first + 1},
                       .expected = *at.second,
                       .process = run.sample.process});
      break;
    }
  }
  return wrong;
}

void tell_wrong_runs(const CaseJob& job, const CaseServices& services, const TruthOf& truth_of,
                     const ModelWeights& weights, const std::vector<GreedyReference>& references,
                     int max_context, const std::vector<WrongRun>& wrong,
                     std::vector<Contestant>& contestants,
                     const std::function<void(Contestant&)>& make, ProgressWatch& watch,
                     EventSink& sink) {
  for (const WrongRun& run : wrong) {
    if (services.stop()) throw Interrupted{};
    Contestant& c = *std::find_if(contestants.begin(), contestants.end(),
                                  [&](const Contestant& one) { return one.name == run.engine; });
    ReplayOptions options =
        replay_options(run.pairwise_d, c.name, weights.config.shape, references);
    options.late_id = run.late_id;
    // A prefill test times one token.
    options.free_tokens = job.n_prompt > 0 ? 1 : job.n_gen;
    options.error_limit = 0;  // timed runs are judged by their ids
    FailureDetails details;
    const FailedStep step =
        observed_step(prompt_of_run(run, truth_of(run.process)),
                      static_cast<int>(run.path.size()) - 1, run.path.back(), {}, options);
    {
      const WatchEnd end(watch);
      try {
        make(c);
        const auto other = [&](const std::string& name) {
          return services.make_engine({.name = name, .max_context = max_context}, weights);
        };
        const JudgeRuns judges = judge_runs(job);
        const std::unique_ptr<Engine> own = std::move(c.engine), of_truth = other(judges.truth),
                                      baseline = other(judges.head_fp32);
        watch.begin("localising", c.name, own.get());
        const LocaliseEngines engines{*own, *of_truth, *baseline};
        LastStep last;
        const FailedStep again = repeat_step(engines, step, options, &last);
        details = details_of(engines, again, last, options, clock_of(services));
      } catch (const Error& error) {
        details = not_repeated(step, error);
      }
    }
    name_step(job, weights, c.name, false, *details.failed_step);
    sink.send(StepFailed{c.name, details});
  }
}

}  // namespace mkbench
