#include "harness/measure/statistics.h"

#include <algorithm>
#include <boost/math/distributions/normal.hpp>
#include <boost/math/distributions/students_t.hpp>
#include <boost/math/special_functions/beta.hpp>
#include <cmath>
#include <numeric>
#include <random>
#include <string>

#include "references/base/error.h"

namespace mkbench {
namespace {

namespace bm = boost::math;

// NaN in, NaN out: a figure of a broken run is reported as NaN, without an exception.
using Quiet = bm::policies::policy<bm::policies::domain_error<bm::policies::ignore_error>>;
using Normal = bm::normal_distribution<double, Quiet>;
using StudentsT = bm::students_t_distribution<double, Quiet>;

// Linear interpolation between order statistics, p in [0, 1]; `sorted` is ascending and not empty.
double quantile_of_sorted(std::span<const double> sorted, double p) {
  const double place = p * static_cast<double>(sorted.size() - 1);
  const size_t below = static_cast<size_t>(place);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  const double share = place - static_cast<double>(below);
  return sorted[below] + share * (sorted[above] - sorted[below]);
}

std::vector<double> sorted_copy(std::span<const double> values) {
  std::vector<double> sorted(values.begin(), values.end());
  std::sort(sorted.begin(), sorted.end());
  return sorted;
}

void check_confidence(double confidence) {
  if (confidence > 0 && confidence < 1) return;
  throw Error(ErrorKind::kBadInput,
              "confidence: found " + std::to_string(confidence) + ", wanted between 0 and 1");
}

// Uniform below `bound` from 64 random bits. std::uniform_int_distribution differs between standard
// libraries, and a seed in a report must give the same numbers everywhere. The bias of at most
// bound / 2^32 is negligible for counts of blocks.
size_t random_below(std::mt19937_64& random, size_t bound) {
  return static_cast<size_t>(((random() >> 32) * static_cast<uint64_t>(bound)) >> 32);
}

// Acceleration of BCa for the mean: skewness of the jackknife values, which are linear in the data.
double acceleration_of(std::span<const double> values, double mean) {
  double squares = 0, cubes = 0;
  for (const double v : values) {
    squares += (v - mean) * (v - mean);
    cubes += (v - mean) * (v - mean) * (v - mean);
  }
  return squares > 0 ? cubes / (6 * std::pow(squares, 1.5)) : 0;
}

}  // namespace

double mean_of(std::span<const double> values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double deviation_of(std::span<const double> values, double mean) {
  double squares = 0;
  for (const double v : values) squares += (v - mean) * (v - mean);
  return std::sqrt(squares / static_cast<double>(values.size() - 1));
}

double t_quantile(double confidence, int degrees_of_freedom) {
  check_confidence(confidence);
  if (degrees_of_freedom < 1) {
    throw Error(ErrorKind::kBadInput, "degrees of freedom: found " +
                                          std::to_string(degrees_of_freedom) + ", wanted >= 1");
  }
  return bm::quantile(bm::complement(StudentsT(degrees_of_freedom), (1 - confidence) / 2));
}

double t_two_sided_p(double t, int degrees_of_freedom) {
  return 2 * bm::cdf(bm::complement(StudentsT(degrees_of_freedom), std::abs(t)));
}

double rate_limit(int64_t seen, int64_t trials, double confidence) {
  if (seen >= trials) return 1;
  return bm::ibeta_inv(static_cast<double>(seen + 1), static_cast<double>(trials - seen),
                       confidence, Quiet());
}

Interval rate_interval(int64_t seen, int64_t trials, double confidence) {
  if (seen <= 0) return {0, rate_limit(seen, trials, confidence)};
  const double each = (1 + confidence) / 2;
  return {1 - rate_limit(trials - seen, trials, each), rate_limit(seen, trials, each)};
}

Summary summarize(std::span<const double> values, double confidence) {
  check_confidence(confidence);
  Summary s;
  s.count = static_cast<int>(values.size());
  if (values.empty()) return s;
  const std::vector<double> sorted = sorted_copy(values);
  s.mean = mean_of(values);
  s.median = quantile_of_sorted(sorted, 0.5);
  s.min = sorted.front();
  s.max = sorted.back();
  if (values.size() < 2) return s;
  const double deviation = deviation_of(values, s.mean);
  s.rel_sd = s.mean != 0 ? deviation / std::abs(s.mean) : 0;
  const double half = t_quantile(confidence, s.count - 1) * deviation / std::sqrt(s.count);
  // An interval of times that reaches below zero means too few values, too far apart.
  if (s.min > 0 && s.mean - half <= 0) return s;
  s.ci = Interval{s.mean - half, s.mean + half};
  return s;
}

std::optional<Interval> bca_interval(std::span<const double> values, double confidence,
                                     uint64_t seed, int resamples) {
  check_confidence(confidence);
  if (values.size() < 2 || resamples < 1) return std::nullopt;
  const double mean = mean_of(values);
  std::mt19937_64 random(seed);
  std::vector<double> means(static_cast<size_t>(resamples));
  for (double& m : means) {
    double sum = 0;
    for (size_t i = 0; i < values.size(); ++i) sum += values[random_below(random, values.size())];
    m = sum / static_cast<double>(values.size());
  }
  std::sort(means.begin(), means.end());
  if (means.front() == means.back()) return Interval{means.front(), means.back()};

  // Bias correction: how far the median of the resampled means lies from the mean. A resampled mean
  // that equals the mean counts half; the half step at both ends keeps the quantile finite when all
  // resampled means lie on one side.
  const auto [first, last] = std::equal_range(means.begin(), means.end(), mean);
  const double count = static_cast<double>(resamples);
  const double share =
      (static_cast<double>(first - means.begin()) + 0.5 * static_cast<double>(last - first)) /
      count;
  const double z0 = bm::quantile(Normal(), std::clamp(share, 0.5 / count, 1 - 0.5 / count));
  const double a = acceleration_of(values, mean);
  const auto end_at = [&](double z) {
    const double shifted = z0 + (z0 + z) / (1 - a * (z0 + z));
    return quantile_of_sorted(means, bm::cdf(Normal(), shifted));
  };
  const double z = bm::quantile(Normal(), 0.5 + confidence / 2);
  return Interval{end_at(-z), end_at(z)};
}

std::optional<Interval> median_interval(std::span<const double> values, double confidence) {
  check_confidence(confidence);
  const std::vector<double> sorted = sorted_copy(values);
  const double n = static_cast<double>(sorted.size());
  // `tail`: the probability that at most `below` of n values lie under the median.
  double term = std::pow(0.5, n), tail = term;
  if (tail > (1 - confidence) / 2) return std::nullopt;
  size_t below = 0;
  for (;;) {
    const double k = static_cast<double>(below + 1);
    term *= (n - k + 1) / k;
    if (tail + term > (1 - confidence) / 2) break;
    tail += term;
    ++below;
  }
  return Interval{sorted[below], sorted[sorted.size() - 1 - below]};
}

std::optional<double> percentile(std::span<const double> values, double p) {
  if (!(p >= 0 && p <= 100)) {
    throw Error(ErrorKind::kBadInput,
                "percentile: found " + std::to_string(p) + ", wanted 0 to 100");
  }
  if (values.empty()) return std::nullopt;
  // A percentile needs at least one value beyond it: 100 values for p99, 10 for p90. The smallest
  // and the largest value are always known. 1e-9 absorbs the rounding of p / 100.
  const double tail = std::min(p, 100 - p) / 100 * static_cast<double>(values.size());
  if (tail > 0 && tail < 1 - 1e-9) return std::nullopt;
  return quantile_of_sorted(sorted_copy(values), p / 100);
}

int count_outliers(std::span<const double> values) {
  constexpr double kRanges = 3;
  const std::optional<double> low = percentile(values, 25), high = percentile(values, 75);
  if (!low) return 0;  // low and high are absent for the same counts of values
  const double reach = kRanges * (*high - *low);
  return static_cast<int>(std::count_if(values.begin(), values.end(), [&](double v) {
    return v < *low - reach || v > *high + reach;
  }));
}

std::optional<double> middle_deviation(std::span<const double> values) {
  constexpr double kBetween = 2.563;  // standard deviations from one percentile to the other
  const std::optional<double> low = percentile(values, 10), high = percentile(values, 90);
  if (!low) return std::nullopt;  // low and high are absent for the same counts of values
  return (*high - *low) / kBetween;
}

std::vector<std::vector<int>> block_orders(int engines, int blocks, bool random, uint64_t seed) {
  std::vector<std::vector<int>> orders;
  std::mt19937_64 source(seed);
  for (int b = 0; b < blocks; ++b) {
    std::vector<int> order(static_cast<size_t>(std::max(engines, 0)));
    std::iota(order.begin(), order.end(), 0);
    if (random) {
      for (size_t i = order.size(); i > 1; --i)
        std::swap(order[i - 1], order[random_below(source, i)]);
    } else if (b % 4 == 1 || b % 4 == 2) {
      // Forward, backward, backward, forward: a linear drift cancels over four blocks.
      std::reverse(order.begin(), order.end());
    }
    orders.push_back(std::move(order));
  }
  return orders;
}

}  // namespace mkbench
