#include "baselines/bug_search.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <memory>
#include <span>

#include "baselines/deviant_model.h"
#include "baselines/hooks.h"
#include "references/base/error.h"

namespace mkbench {
namespace {

using at::Tensor;

constexpr size_t kPaired = 5;    // of the best single bugs, each is tried with each other
constexpr size_t kRefined = 24;  // of the best bugs of the first run, how many go on to the others
// A bug that leaves at most kClear of the logits' error is the one: only kBehindClear further ones are
// tried, because its variants stand beside it.
constexpr double kClear = 0.01;
constexpr size_t kBehindClear = 16;
constexpr size_t kRounded = 3;        // of the best bugs, how many are run in bf16 too
constexpr size_t kBatchedRows = 128;  // runs of at most so many rows go through the model together
constexpr int64_t kMostTies = 8;      // of a step whose id tells anything
constexpr double kAsWrong = 0.25;  // least error of a run's logits, over that of the failing run's
constexpr int kShortestTail = 2;   // rows of the head that are never scored are at least so many

double now() {
  using Clock = std::chrono::steady_clock;
  return std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
}

void check(const BugQuestion& question, int vocab) {
  const auto refuse = [](const std::string& why) {
    throw Error(ErrorKind::kBadInput, "eager: explain: " + why);
  };
  for (const ObservedRun& run : question.runs) {
    for (const int32_t id : run.ids) {
      if (id < 0 || id >= vocab)
        refuse("id is " + std::to_string(id) + ", wanted 0 to " + std::to_string(vocab - 1));
    }
    if (run.prompt < 1 || run.found.empty() ||
        run.ids.size() + 1 < static_cast<size_t>(run.prompt) + run.found.size())
      refuse("a run has fewer rows than steps");
  }
}

// The lowest of the other logits for the last `tail` ones of each step.
Tensor with_tail(const Tensor& logits, int64_t tail) {
  const Tensor scored = logits.narrow(1, 0, logits.size(1) - tail);
  return at::cat({scored, scored.amin(1, true).expand({logits.size(0), tail})}, 1);
}

Tensor centred(const Tensor& logits) { return logits - logits.mean(-1, true); }

// How many of the last logits are equal, or not finite, in every step: rows of the head that are
// never scored.
int unscored_tail(const ObservedRun& run, int vocab) {
  int tail = vocab;
  for (size_t t = 0; t < run.found.size(); ++t) {
    const float* row = run.logits.data() + t * static_cast<size_t>(vocab);
    const float last = row[vocab - 1];
    int n = 1;
    while (n < vocab && (row[vocab - 1 - n] == last || !std::isfinite(row[vocab - 1 - n]))) ++n;
    tail = std::min(tail, n);
  }
  return tail < kShortestTail || tail == vocab ? 0 : tail;
}

// What the engine gave in runs that go through the model together, all steps in turn.
struct Batch {
  std::vector<ObservedRun> runs;
  Tensor logits;       // [steps, vocab], centred; undefined where none can be used
  Tensor finite;       // bool [steps]: which steps have logits that can be compared
  Tensor found, came;  // int64 [steps], and bool [steps]: an id of the vocabulary came back
};

struct Tried {
  std::vector<Deviation> bugs;
  BugFit fit;
  double distance = 0;  // of centred logits, squared; 0 without logits
};

class Search {
 public:
  Search(const DeviantModel& model, const ModelConfig& config, const BugQuestion& question)
      : model_(model),
        vocab_(config.shape.vocab),
        question_(question),
        end_(now() + question.seconds) {
    size_t rows = 0;
    std::vector<ObservedRun> runs = question.runs;
    std::swap(runs.front(), runs[cheapest_of(runs)]);
    // The first run is a batch of its own.
    for (const ObservedRun& run : runs) {
      rows = std::max(rows, run.ids.size());
      const bool fits = batches_.size() > 1 && run.ids.size() <= kBatchedRows;
      if (fits && batches_.back().runs.front().ids.size() <= kBatchedRows)
        batches_.back().runs.push_back(run);
      else
        batches_.push_back({{run}, {}, {}, {}, {}});
    }
    for (Batch& batch : batches_) prepare(batch);
    known_ = known_bugs(config, static_cast<int>(rows));
    add_tails(config.shape.vocab);
  }

  BugFits run() {
    BugFits result;
    result.known = static_cast<int>(known_.size());
    truth_ = tried({}, {}, {});
    first_distance_ = truth_.distance;
    go_on(truth_);
    if (with_logits()) truth_.fit.error = 1;
    result.truth = truth_.fit;
    result.truth.name = "none";
    if (!with_logits() && truth_.fit.wrong < kEnoughIds) return result;
    try_known();
    result.tried = static_cast<int>(tried_.size());
    result.timed_out = left_ > 0;
    sort();
    // The first run tells most bugs apart; only the best are tried on the others.
    if (tried_.size() > kRefined) tried_.resize(kRefined);
    for (Tried& one : tried_) go_on(one);
    sort();
    if (with_logits() && !tried_.empty() && tried_.front().fit.error > kMostLeft) try_pairs();
    if (with_logits()) result.truth.rounding = rounding_of({});
    for (size_t i = 0; i < std::min(kRounded, tried_.size()); ++i) {
      if (with_logits()) tried_[i].fit.rounding = rounding_of(tried_[i].bugs);
    }
    for (size_t i = 0; i < std::min(size_t{kBestFits}, tried_.size()); ++i)
      result.best.push_back(tried_[i].fit);
    return result;
  }

 private:
  // Whether the first run has logits that can be compared; else ids decide.
  bool with_logits() const { return batches_.front().logits.defined(); }

  // The run that bugs are tried on first: the failing one, runs.front(), or where that is long, the
  // shortest of those whose logits are about as wrong.
  size_t cheapest_of(const std::vector<ObservedRun>& runs) {
    size_t best = 0;
    double failing = 0;
    for (size_t i = 0; i < runs.size() && runs.front().ids.size() > kBatchedRows; ++i) {
      Batch one{{runs[i]}, {}, {}, {}, {}};
      prepare(one);
      if (!one.logits.defined()) continue;
      const double error = squared_distance(one, one.logits, model_.logits(one.runs, {})) /
                           one.finite.sum().item<double>();
      if (i == 0) failing = error;
      const bool as_wrong = failing > 0 && error >= kAsWrong * kAsWrong * failing;
      if (as_wrong && runs[i].ids.size() < runs[best].ids.size()) best = i;
    }
    return best;
  }

  void prepare(Batch& batch) {
    std::vector<int64_t> ids;
    std::vector<Tensor> logits;
    for (const ObservedRun& run : batch.runs) {
      ids.insert(ids.end(), run.found.begin(), run.found.end());
      if (!run.logits.empty()) logits.push_back(scored_logits(run));
    }
    const Tensor found = at::tensor(ids, at::kLong);
    batch.came = (found >= 0) & (found < vocab_);
    batch.found = found.clamp(0, vocab_ - 1);
    if (logits.size() < batch.runs.size()) return;
    const Tensor all = at::cat(logits);
    batch.finite = all.isfinite().all(1);
    if (!batch.finite.any().item<bool>()) return;
    batch.logits = centred(all);
  }

  // [steps, vocab], with the lowest logit of a step in rows of the head that are never scored.
  Tensor scored_logits(const ObservedRun& run) {
    const auto steps = static_cast<int64_t>(run.found.size());
    const int tail = unscored_tail(run, vocab_);
    tail_ = tail_ < 0 ? tail : std::min(tail_, tail);
    const Tensor logits =
        at::from_blob(const_cast<float*>(run.logits.data()), {steps, vocab_}, at::kFloat).clone();
    return tail > 0 ? with_tail(logits, tail) : logits;
  }

  // The rows of the head that are never scored, as the logits show them; by ids alone, a few counts
  // that kernels' tiles leave out.
  void add_tails(int vocab) {
    std::vector<int> tails;
    if (tail_ > 0) tails = {tail_};
    if (tail_ < 0) {
      for (const int tile : {32, 64, 128, 256, 1024}) {
        if (2 * tile > vocab) continue;
        tails.push_back(tile);
        if (vocab % tile != 0) tails.push_back(vocab % tile);
      }
    }
    std::sort(tails.begin(), tails.end());
    tails.erase(std::unique(tails.begin(), tails.end()), tails.end());
    for (const int n : tails) {
      const Hooks hooks{.logits = [n](const Tensor& logits) { return with_tail(logits, n); }};
      KnownBug& bug = known_.emplace_back();
      bug.deviation.hooks = std::make_shared<const Hooks>(hooks);
      bug.name = "head_tail";
      bug.text = "the last " + std::to_string(n) + " rows of the LM head are never scored";
    }
  }

  // Squared norm of the difference of centred logits, over the steps that can be compared.
  static double squared_distance(const Batch& batch, const Tensor& theirs, const Tensor& logits) {
    const Tensor difference = theirs.to(logits.device()) - centred(logits);
    const Tensor of_step = difference.pow(2).sum(1);
    return of_step.masked_select(batch.finite.to(logits.device())).sum().item<double>();
  }

  // Adds what bugs leave of the errors of a batch; `logits`: those of the truth with the bugs.
  void measure(const Batch& batch, const Tensor& logits, Tried& one) const {
    if (batch.logits.defined()) one.distance += squared_distance(batch, batch.logits, logits);
    const Tensor found = batch.found.to(logits.device()).unsqueeze(1);
    const Tensor came = batch.came.to(logits.device());
    const Tensor logit = logits.gather(1, found).squeeze(1);
    const Tensor below = logits.amax(1) - logit;
    // False for NaN, and where the logits are so flat that they fit any id.
    const Tensor ties = (logits >= logits.amax(1, true) - question_.tau).sum(1);
    const Tensor right = (below <= question_.tau) & (ties <= kMostTies);
    one.fit.wrong += static_cast<int>((came & ~right).sum().item<int64_t>());
    const Tensor surprise = (logits.logsumexp(1) - logit).masked_select(came);
    one.fit.surprise += surprise.sum().item<double>();
  }

  // The bugs on the first batch. `logits`: null, or the truth's on it with the bugs.
  Tried tried(std::vector<Deviation> bugs, std::string name, std::string text,
              const Tensor* logits = nullptr) const {
    Tried one{std::move(bugs), {}, 0};
    one.fit.name = std::move(name);
    one.fit.text = std::move(text);
    const Batch& batch = batches_.front();
    measure(batch, logits ? *logits : model_.logits(batch.runs, one.bugs), one);
    return one;
  }

  // Whether a bug that was tried on the first run explains all runs.
  bool is_clear(Tried one) const {
    constexpr double kMost = kClear * kClear;
    if (!with_logits() || !(one.distance <= kMost * first_distance_)) return false;
    go_on(one);
    return one.distance <= kMost * truth_.distance;
  }

  // Adds a known bug; whether another is to be tried.
  bool add(Tried one) {
    if (is_clear(one)) left_ = std::min(left_, kBehindClear + 1);
    tried_.push_back(std::move(one));
    return --left_ > 0 && now() < end_;
  }

  // Each known bug alone, until one is clear or the time is over.
  void try_known() {
    left_ = known_.size();
    for (auto bug = known_.begin(); bug != known_.end() && left_ > 0 && now() < end_;) {
      const auto other = std::find_if(
          bug, known_.end(), [](const KnownBug& known) { return known.deviation.layer < 0; });
      if (bug != other) {
        try_layers({bug, other});
        bug = other;
      } else {
        add(tried({bug->deviation}, bug->name, bug->text));
        ++bug;
      }
    }
  }

  // Each of these bugs alone; they are in the order that each_alone() takes.
  void try_layers(std::span<const KnownBug> bugs) {
    std::vector<Deviation> deviations;
    for (const KnownBug& bug : bugs) deviations.push_back(bug.deviation);
    model_.each_alone(batches_.front().runs.front(), deviations,
                      [&](size_t i, const Tensor& logits) {
                        return add(tried({deviations[i]}, bugs[i].name, bugs[i].text, &logits));
                      });
  }

  // The bugs on the other batches.
  void go_on(Tried& one) const {
    for (size_t i = 1; i < batches_.size(); ++i)
      measure(batches_[i], model_.logits(batches_[i].runs, one.bugs), one);
  }

  double share(double distance) const {
    const double share = std::sqrt(distance / std::max(truth_.distance, 1e-30));
    return std::isfinite(share) ? share : std::numeric_limits<double>::max();
  }

  double rounding_of(std::span<const Deviation> bugs) const {
    double distance = 0;
    for (const Batch& batch : batches_) {
      if (!batch.logits.defined()) continue;
      distance += squared_distance(batch, centred(model_.logits(batch.runs, bugs)),
                                   model_.logits(batch.runs, bugs, true));
    }
    return share(distance);
  }

  void sort() {
    const auto key = [this](const Tried& t) {
      const double first = with_logits() ? t.distance : t.fit.wrong;
      const bool finite = std::isfinite(first) && std::isfinite(t.fit.surprise);
      return finite ? std::pair(first, t.fit.surprise) : std::pair(1e300, 0.0);
    };
    std::stable_sort(tried_.begin(), tried_.end(),
                     [&](const Tried& a, const Tried& b) { return key(a) < key(b); });
    if (!with_logits()) return;
    for (Tried& one : tried_) one.fit.error = share(one.distance);
  }

  void try_pairs() {
    const std::vector<Tried> best(
        tried_.begin(), tried_.begin() + static_cast<int64_t>(std::min(kPaired, tried_.size())));
    for (size_t i = 0; i < best.size(); ++i) {
      for (size_t j = i + 1; j < best.size() && now() < end_; ++j) {
        const Deviation &a = best[i].bugs.front(), &b = best[j].bugs.front();
        if (best[i].fit.name == best[j].fit.name && a.layer == b.layer) continue;
        tried_.push_back(tried({a, b}, best[i].fit.name + "+" + best[j].fit.name,
                               best[i].fit.text + ", and " + best[j].fit.text));
        go_on(tried_.back());
      }
    }
    sort();
  }

  const DeviantModel& model_;
  const int vocab_;
  const BugQuestion& question_;
  const double end_;
  std::vector<Batch> batches_;
  std::vector<KnownBug> known_;
  int tail_ = -1;  // rows of the head that no run scores; -1: no logits are shown
  Tried truth_;
  double first_distance_ = 0;  // the truth's, of the first run alone
  size_t left_ = 0;            // known bugs that are still to be tried
  std::vector<Tried> tried_;
};

}  // namespace

BugFits search_bugs(const ModelTensors& tensors, const ModelConfig& config,
                    const BugQuestion& question) {
  check(question, config.shape.vocab);
  const DeviantModel model(tensors, config.rope);
  return Search(model, config, question).run();
}

}  // namespace mkbench
