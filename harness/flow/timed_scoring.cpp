#include "harness/flow/timed_scoring.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <span>
#include <tuple>

namespace mkbench {
namespace {

class Scoring {
 public:
  Scoring(const TimedTruth& truth, const CaseServices& services, const ModelWeights& weights,
          int max_context, const std::string& judge, ProgressWatch& watch)
      : truth_(truth),
        services_(services),
        weights_(weights),
        max_context_(max_context),
        runs_{judge},
        watch_(watch),
        end_(watch) {
    open_truth();
  }

  // Result of confirm_path() for the run; equal runs are scored once. D of the references was
  // measured on other text: before an id is called wrong, D is measured on the run's own steps.
  const WrongId& wrong(const TimedRun& run, double d) {
    const bool rounds = rounds_logits(run.sample.engine);
    const auto [found, is_new] = scored_.try_emplace({run.last_id, rounds, run.path});
    if (!is_new) return found->second;
    const auto confirm = [&](const std::vector<double>& own) {
      set_out(run);
      return confirm_path(*engine_, run.path, vocab(), d, rounds, own);
    };
    found->second = confirm({});
    if (!found->second.text.empty()) found->second = confirm(measure_d(run));
    return found->second;
  }

 private:
  void open_truth() {
    engine_ = make(runs_.truth);
    watch_.begin("scoring", runs_.truth, engine_.get());
    start_afresh(*engine_, truth_.prompt);
    if (engine_->capabilities().snapshots) start_ = engine_->save();
  }

  // For each step of the path: the fp32-head baseline's largest error in a difference of two of the
  // truth's top logits. The truth is closed meanwhile: otherwise every case would need memory for
  // both engines, although few runs have a near tie.
  std::vector<double> measure_d(const TimedRun& run) {
    std::vector<std::vector<std::pair<float, int32_t>>> tops;
    set_out(run);
    walk_path(*engine_, run.path, 0, vocab(), [&](size_t, int32_t, std::span<const float> row) {
      std::vector<std::pair<float, int32_t>> order;
      for (size_t i = 0; i < row.size(); ++i) order.emplace_back(row[i], static_cast<int32_t>(i));
      const size_t top = std::min(size_t{kTopIds}, order.size());
      std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(top),
                        order.end(), std::greater<>());
      order.resize(top);
      tops.push_back(std::move(order));
      return true;
    });
    std::vector<double> d;
    watch_.begin("scoring", runs_.head_fp32, nullptr);
    start_ = {};
    engine_.reset();
    std::unique_ptr<Engine> head = make(runs_.head_fp32);
    watch_.begin("scoring", runs_.head_fp32, head.get());
    start_afresh(*head, truth_.ending_with(run.last_id));
    walk_path(*head, run.path, 0, vocab(), [&](size_t step, int32_t, std::span<const float> row) {
      double low = std::numeric_limits<double>::infinity(), high = -low;
      for (const auto& [logit, id] : tops[step]) {
        const double error = double{row[static_cast<size_t>(id)]} - double{logit};
        low = std::min(low, error);
        high = std::max(high, error);
      }
      d.push_back(high - low);
      return true;
    });
    watch_.begin("scoring", runs_.truth, nullptr);
    head.reset();
    open_truth();
    return d;
  }

  void set_out(const TimedRun& run) {
    start_again(*engine_, start_, truth_.prompt);
    engine_->set_pending(run.last_id);
  }

  int vocab() const { return weights_.config.shape.vocab; }

  std::unique_ptr<Engine> make(const std::string& name) {
    watch_.begin("scoring", name, nullptr);
    return services_.make_engine({.name = name, .max_context = max_context_}, weights_);
  }

  const TimedTruth& truth_;
  const CaseServices& services_;
  const ModelWeights& weights_;
  const int max_context_;
  const JudgeRuns runs_;
  ProgressWatch& watch_;
  std::unique_ptr<Engine> engine_;
  const WatchEnd end_;  // ends the stage before the engine is destroyed
  Snapshot start_;
  std::map<std::tuple<int32_t, bool, std::vector<int32_t>>, WrongId> scored_;
};

// Records the score of a run; true if the engine fails by it.
bool settle(TimedRun& run, const std::string& wrong, Contestant& c, EventSink& sink) {
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
  if (wrong.empty() || c.verdict == Verdict::kFailToken) return false;
  fail_engine(sink, c, Verdict::kFailToken,
              fmt::format("block {}, late id {}: {}", sample.block, run.last_id, wrong));
  return true;
}

}  // namespace

std::vector<WrongRun> score_runs(std::vector<TimedRun>& runs, const TimedTruth& truth,
                                 const std::vector<GreedyReference>& references,
                                 const CaseServices& services, const ModelWeights& weights,
                                 int max_context, std::vector<Contestant>& contestants,
                                 ProgressWatch& watch, EventSink& sink) {
  std::vector<WrongRun> wrongs;
  if (runs.empty()) return wrongs;
  const auto judge = std::find_if(contestants.begin(), contestants.end(),
                                  [](const Contestant& c) { return c.judges; });
  Scoring scoring(truth, services, weights, max_context, judge->name, watch);
  double d = 0;
  for (const GreedyReference& reference : references) {
    if (!reference.token_only) d = std::max(d, reference.pairwise_d);
  }
  for (size_t i = 0; i < runs.size(); ++i) {
    if (services.stop()) throw Interrupted{};
    watch.count(static_cast<int>(i), static_cast<int>(runs.size()));
    TimedRun& run = runs[i];
    const auto c = std::find_if(contestants.begin(), contestants.end(), [&](const Contestant& one) {
      return one.name == run.sample.engine;
    });
    const WrongId& wrong = scoring.wrong(run, d);
    sink.send(MemoryHeld{services.held_bytes()});
    if (!settle(run, wrong.text, *c, sink)) continue;
    wrongs.push_back(
        {.engine = c->name,
         .late_id = run.last_id,
         .path = {run.path.begin(), run.path.begin() + static_cast<std::ptrdiff_t>(wrong.step) + 1},
         .expected = wrong.expected,
         .pairwise_d = d,
         .process = run.sample.process});
  }
  return wrongs;
}

}  // namespace mkbench
