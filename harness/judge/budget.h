// Time budget for judging one engine, and the pace that predicts how long its next work takes.
#pragma once

#include <functional>
#include <utility>
#include <vector>

namespace mkbench {

// Thrown by TimeBudget::check(). The judge that makes a check catches it, keeps what it has found,
// and says how far it has come (Findings::unfinished).
struct BudgetEnded {};

// Seconds of std::chrono::steady_clock.
double steady_seconds();

using Now = std::function<double()>;  // monotonic clock, in seconds

class TimeBudget {
 public:
  explicit TimeBudget(double seconds, Now now = steady_seconds)
      : seconds_(seconds), now_(std::move(now)), begin_(now_()) {}

  double seconds() const { return seconds_; }
  double now() const { return now_(); }
  double left() const { return seconds_ - (now_() - begin_); }
  void check() const {
    if (left() <= 0) throw BudgetEnded{};
  }
  // Runs `work` outside of the budget: loading weights, opening engines and computing the truth are
  // not charged to the judged engine.
  void outside(const std::function<void()>& work);

 private:
  double seconds_;
  Now now_;
  double begin_;
};

// Predicts an engine's seconds per token from the number of KV rows, all of which attention reads:
// by a line through the latest measurement and the latest one with at most half as many rows
// (closer ones differ by noise). Its slope is at least 0.
class Pace {
 public:
  void learn(double rows, double seconds_a_token) { seen_.emplace_back(rows, seconds_a_token); }
  bool known() const { return !seen_.empty(); }
  // Seconds of one token at `rows`; 0 if nothing was measured.
  double at(double rows) const;
  // Seconds for one token at each of first, first + 1, ..., last rows.
  double between(double first, double last) const;

 private:
  std::vector<std::pair<double, double>> seen_;  // rows, seconds a token; in the order of time
};

// `decode`: seconds per token, by cache length. `prefill`: seconds per row, by the number of rows;
// a prefill takes rows x this pace.
struct EnginePace {
  Pace decode, prefill;

  // Seconds of a prefill of `rows` rows and `steps` decoded tokens behind it.
  double jump(int rows, int steps) const {
    return prefill.at(rows) * rows + decode.between(rows + 1, rows + steps);
  }
};

}  // namespace mkbench
