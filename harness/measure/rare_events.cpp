#include "harness/measure/rare_events.h"

#include <cmath>
#include <functional>

namespace mkbench {
namespace {

// P(X <= seen) for X of Binomial(trials, rate), summed from the largest term down, by logarithms.
double at_most(int64_t seen, int64_t trials, double rate) {
  if (rate <= 0) return 1;
  if (rate >= 1) return seen >= trials ? 1 : 0;
  const double n = static_cast<double>(trials);
  double sum = 0;
  for (int64_t k = 0; k <= seen; ++k) {
    const double x = static_cast<double>(k);
    const double log_choose = std::lgamma(n + 1) - std::lgamma(x + 1) - std::lgamma(n - x + 1);
    sum += std::exp(log_choose + x * std::log(rate) + (n - x) * std::log1p(-rate));
  }
  return std::fmin(sum, 1.0);
}

// The rate at which a falling function of the rate reaches `level`.
double solve(const std::function<double(double rate)>& falling, double level) {
  constexpr int kHalvings = 200;
  double low = 0, high = 1;
  for (int i = 0; i < kHalvings; ++i) {
    const double middle = (low + high) / 2;
    (falling(middle) > level ? low : high) = middle;
  }
  return (low + high) / 2;
}

}  // namespace

Interval rate_interval(int64_t seen, int64_t trials, double confidence) {
  if (trials <= 0) return {0, 1};
  if (seen <= 0) return {0, -std::expm1(std::log1p(-confidence) / static_cast<double>(trials))};
  const double tail = (1 - confidence) / 2;
  const double high =
      seen >= trials ? 1 : solve([&](double r) { return at_most(seen, trials, r); }, tail);
  const double low = solve([&](double r) { return at_most(seen - 1, trials, r); }, 1 - tail);
  return {low, high};
}

}  // namespace mkbench
