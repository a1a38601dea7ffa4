#include "baselines/bug_search.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace mkbench {
namespace {

using at::Tensor;

constexpr size_t kPaired = 5;     // of the best single bugs, each is tried with each other
constexpr size_t kRounded = 3;    // of the best bugs, how many are run in bf16 too
constexpr int kShortestTail = 2;  // rows of the head that are never scored are at least so many

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

// What the engine gave in one run, on the truth's device.
struct Target {
  const ObservedRun* run;
  Tensor logits;       // [steps, vocab], centred; undefined where none can be used
  Tensor finite;       // bool [steps]: which steps have logits that can be compared
  Tensor found, came;  // int64 [steps], and bool [steps]: an id of the vocabulary came back
};

struct Tried {
  std::vector<Deviation> bugs;
  BugFit fit;
};

class Search {
 public:
  Search(const DeviantModel& model, const ModelConfig& config, const BugQuestion& question,
         const std::function<double()>& now)
      : model_(model),
        vocab_(config.shape.vocab),
        question_(question),
        now_(now),
        end_(now() + question.seconds) {
    int rows = 0;
    for (const ObservedRun& run : question.runs) {
      targets_.push_back(target_of(run));
      rows = std::max(rows, static_cast<int>(run.ids.size()));
    }
    known_ = known_bugs(config, rows);
    add_tails(config.shape.vocab);
  }

  BugFits run() {
    BugFits result;
    result.known = static_cast<int>(known_.size());
    measure_truth(result.truth);
    for (const KnownBug& bug : known_) {
      if (now_() >= end_) break;
      try_bugs({bug.deviation}, bug.name, bug.text);
    }
    result.tried = static_cast<int>(tried_.size());
    sort();
    if (!explained()) try_pairs();
    sort();
    for (size_t i = 0; i < std::min(kRounded, tried_.size()); ++i) {
      if (with_logits_ && now_() < end_) tried_[i].fit.rounding = rounding_of(tried_[i].bugs);
    }
    for (size_t i = 0; i < std::min(size_t{kBestFits}, tried_.size()); ++i)
      result.best.push_back(tried_[i].fit);
    return result;
  }

 private:
  Target target_of(const ObservedRun& run) {
    const auto steps = static_cast<int64_t>(run.found.size());
    Target target{&run, {}, {}, {}, {}};
    const std::vector<int64_t> ids(run.found.begin(), run.found.end());
    const Tensor found = at::tensor(ids, at::kLong);
    target.came = (found >= 0) & (found < vocab_);
    target.found = found.clamp(0, vocab_ - 1);
    if (run.logits.empty()) return target;
    const int tail = unscored_tail(run, vocab_);
    tail_ = tail_ < 0 ? tail : std::min(tail_, tail);
    Tensor logits =
        at::from_blob(const_cast<float*>(run.logits.data()), {steps, vocab_}, at::kFloat).clone();
    if (tail > 0) {  // any finite value: what stands there is not the head's
      const Tensor scored = logits.narrow(1, 0, vocab_ - tail);
      logits.narrow(1, vocab_ - tail, tail).copy_(scored.amin(1, true).expand({steps, tail}));
    }
    target.finite = logits.isfinite().all(1);
    if (target.finite.any().item<bool>()) {
      target.logits = centred(logits);
      with_logits_ = true;
    }
    return target;
  }

  // The rows of the head that are never scored, as the logits show them; by ids alone, a few counts
  // that kernels' tiles leave out.
  void add_tails(int vocab) {
    std::vector<int> tails;
    if (tail_ > 0) tails = {tail_};
    if (tail_ < 0) {
      for (const int tile : {32, 64, 128, 256, 1024}) {
        if (vocab % tile != 0) tails.push_back(vocab % tile);
        if (tile < vocab) tails.push_back(tile);
      }
    }
    std::sort(tails.begin(), tails.end());
    tails.erase(std::unique(tails.begin(), tails.end()), tails.end());
    for (const int n : tails) {
      known_.push_back({{Bug::kHeadTail, static_cast<double>(n)},
                        "head_tail",
                        "the last " + std::to_string(n) + " rows of the LM head are never scored"});
    }
  }

  // The logits of a run with `bugs`, on the CPU only where they are compared.
  Tensor logits_of(const Target& target, std::span<const Deviation> bugs, bool rounded) const {
    Tensor logits = model_.logits(*target.run, bugs, rounded);
    for (const Deviation& d : bugs) {
      if (d.bug != Bug::kHeadTail) continue;
      const auto tail = static_cast<int64_t>(d.value);
      const Tensor lowest = logits.narrow(1, 0, vocab_ - tail).amin(1, true);
      logits.narrow(1, vocab_ - tail, tail).copy_(lowest.expand({logits.size(0), tail}));
    }
    return logits;
  }

  // Squared norm of the difference of centred logits, over the steps that can be compared.
  static double squared_distance(const Target& target, const Tensor& theirs, const Tensor& logits) {
    const Tensor difference = theirs.to(logits.device()) - centred(logits);
    const Tensor of_step = difference.pow(2).sum(1);
    return of_step.masked_select(target.finite.to(logits.device())).sum().item<double>();
  }

  void measure(const Tensor& logits, const Target& target, BugFit& fit, double& distance) const {
    if (target.logits.defined()) distance += squared_distance(target, target.logits, logits);
    const Tensor found = target.found.to(logits.device()).unsqueeze(1);
    const Tensor came = target.came.to(logits.device());
    const Tensor below = logits.amax(1) - logits.gather(1, found).squeeze(1);
    fit.wrong += static_cast<int>(((below > question_.tau) & came).sum().item<int64_t>());
    const Tensor minus_log_p = logits.logsumexp(1) - logits.gather(1, found).squeeze(1);
    fit.surprise += minus_log_p.masked_select(came).sum().item<double>();
  }

  BugFit fit_of(std::span<const Deviation> bugs, double& distance) const {
    BugFit fit;
    int64_t steps = 0;
    for (const Target& target : targets_) {
      measure(logits_of(target, bugs, false), target, fit, distance);
      steps += target.came.sum().item<int64_t>();
    }
    fit.surprise /= static_cast<double>(std::max<int64_t>(steps, 1));
    return fit;
  }

  void measure_truth(BugFit& truth) {
    truth = fit_of({}, of_truth_);
    truth.name = "none";
    if (!with_logits_) return;
    truth.error = 1;
    truth.rounding = rounding_of({});
  }

  double share(double distance) const {
    const double share = std::sqrt(distance / std::max(of_truth_, 1e-30));
    return std::isfinite(share) ? share : std::numeric_limits<double>::max();
  }

  double rounding_of(std::span<const Deviation> bugs) const {
    double distance = 0;
    for (const Target& target : targets_) {
      if (!target.logits.defined()) continue;
      distance += squared_distance(target, centred(logits_of(target, bugs, false)),
                                   logits_of(target, bugs, true));
    }
    return share(distance);
  }

  void try_bugs(std::vector<Deviation> bugs, std::string name, std::string text) {
    double distance = 0;
    BugFit fit = fit_of(bugs, distance);
    fit.name = std::move(name);
    fit.text = std::move(text);
    if (with_logits_) fit.error = share(distance);
    if (std::isfinite(fit.surprise)) tried_.push_back({std::move(bugs), std::move(fit)});
  }

  void sort() {
    const auto key = [this](const Tried& t) {
      return with_logits_ ? std::pair(t.fit.error, t.fit.surprise)
                          : std::pair(static_cast<double>(t.fit.wrong), t.fit.surprise);
    };
    std::stable_sort(tried_.begin(), tried_.end(),
                     [&](const Tried& a, const Tried& b) { return key(a) < key(b); });
  }

  bool explained() const {
    if (tried_.empty()) return true;
    const BugFit& best = tried_.front().fit;
    return with_logits_ ? best.error <= 0.5 : best.wrong == 0;
  }

  void try_pairs() {
    const std::vector<Tried> best(
        tried_.begin(), tried_.begin() + static_cast<int64_t>(std::min(kPaired, tried_.size())));
    for (size_t i = 0; i < best.size(); ++i) {
      for (size_t j = i + 1; j < best.size() && now_() < end_; ++j) {
        const Deviation &a = best[i].bugs.front(), &b = best[j].bugs.front();
        if (a.bug == b.bug && a.layer == b.layer) continue;
        try_bugs({a, b}, best[i].fit.name + "+" + best[j].fit.name,
                 best[i].fit.text + ", and " + best[j].fit.text);
      }
    }
  }

  const DeviantModel& model_;
  const int vocab_;
  const BugQuestion& question_;
  const std::function<double()>& now_;
  const double end_;
  std::vector<Target> targets_;
  std::vector<KnownBug> known_;
  bool with_logits_ = false;
  int tail_ = -1;  // rows of the head that no run scores; -1: no logits are shown
  double of_truth_ = 0;
  std::vector<Tried> tried_;
};

}  // namespace

BugFits search_bugs(const DeviantModel& model, const ModelConfig& config,
                    const BugQuestion& question, const std::function<double()>& now) {
  return Search(model, config, question, now).run();
}

}  // namespace mkbench
