#include "harness/flow/timed_scoring.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <tuple>

#include "harness/judge/parity.h"

namespace mkbench {
namespace {

// A D above this would call too many ids near ties; capture_live() has the same limit.
constexpr double kMostD = 0.5;

class Scoring {
 public:
  Scoring(const TimedTruth& truth, const FlowServices& services, const ModelWeights& weights,
          int max_context, ProgressWatch& watch)
      : truth_(truth),
        services_(services),
        weights_(weights),
        max_context_(max_context),
        watch_(watch),
        engine_(make(kTruthName)),
        end_(watch) {
    watch_.begin("scoring", kTruthName, engine_.get());
    start_afresh(*engine_, truth_.prompt);
    if (engine_->capabilities().snapshots) start_ = engine_->save();
  }

  double measure_d(const TimedRun& run) {
    const std::unique_ptr<Engine> head = make(kHeadFp32Name);
    watch_.begin("scoring", kTruthName, engine_.get());
    double d = 0;
    for (const ReferenceStep& step :
         capture_path(*engine_, *head, weights_.config.shape.vocab, "timed",
                      truth_.ending_with(run.last_id), static_cast<int>(run.path.size()))
             .steps) {
      d = std::max(d, step.baseline_pairwise);
    }
    start_afresh(*engine_, truth_.prompt);
    return std::min(d, kMostD);
  }

  // What confirm_path() says of the run; equal runs are scored once.
  const std::string& wrong(const TimedRun& run, double d) {
    const bool rounds = rounds_logits(run.sample.engine);
    const auto [found, is_new] = scored_.try_emplace({run.last_id, rounds, run.path});
    if (is_new) {
      start_again(*engine_, start_, truth_.prompt);
      engine_->set_pending(run.last_id);
      found->second = confirm_path(*engine_, run.path, weights_.config.shape.vocab, d, rounds);
    }
    return found->second;
  }

 private:
  std::unique_ptr<Engine> make(const char* name) {
    watch_.begin("scoring", name, nullptr);
    return services_.make_engine({.name = name, .max_context = max_context_}, weights_);
  }

  const TimedTruth& truth_;
  const FlowServices& services_;
  const ModelWeights& weights_;
  const int max_context_;
  ProgressWatch& watch_;
  const std::unique_ptr<Engine> engine_;
  const WatchEnd end_;  // ends the stage before the engine is destroyed
  Snapshot start_;
  std::map<std::tuple<int32_t, bool, std::vector<int32_t>>, std::string> scored_;
};

void settle(TimedRun& run, const std::string& wrong, Contestant& c, EventSink& sink) {
  Sample& sample = run.sample;
  if (!run.dropped) {
    sample.receipts_checked += static_cast<int>(sample.ids.size());
    if (!wrong.empty()) {
      ++sample.receipts_wrong;  // what follows a wrong id is not counted
      sample.invalid_reason = wrong;
    } else if (sample.invalid_reason == kUnscored) {
      sample.valid = true;
      sample.invalid_reason.clear();
    }
    sink.send(SampleScored{sample});
  }
  if (wrong.empty() || c.verdict == Verdict::kFailToken) return;
  fail_engine(sink, c, Verdict::kFailToken,
              fmt::format("block {}, late id {}: {}", sample.block, run.last_id, wrong));
}

}  // namespace

void score_runs(std::vector<TimedRun>& runs, const TimedTruth& truth,
                const std::vector<GreedyReference>& references, const FlowServices& services,
                const ModelWeights& weights, int max_context, std::vector<Contestant>& contestants,
                ProgressWatch& watch, EventSink& sink) {
  if (runs.empty()) return;
  Scoring scoring(truth, services, weights, max_context, watch);
  std::optional<double> d;
  for (const GreedyReference& reference : references) {
    if (!reference.token_only) d = std::max(d.value_or(0), reference.pairwise_d);
  }
  if (!d) d = scoring.measure_d(runs.front());
  for (size_t i = 0; i < runs.size(); ++i) {
    if (services.stop()) throw Interrupted{};
    watch.count(static_cast<int>(i), static_cast<int>(runs.size()));
    TimedRun& run = runs[i];
    const auto c = std::find_if(contestants.begin(), contestants.end(), [&](const Contestant& one) {
      return one.name == run.sample.engine;
    });
    settle(run, scoring.wrong(run, *d), *c, sink);
  }
}

}  // namespace mkbench
