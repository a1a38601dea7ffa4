// Statistics over blocks: the unit of replication is one run of n_gen tokens, never a token.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "references/base/fields.h"

namespace mkbench {

struct Interval {
  double low = 0, high = 0;
};

constexpr std::string_view struct_name(Tag<Interval>) { return "interval"; }
template <typename V>
void describe_fields(V& v, Tag<Interval>) {
  v.field("low", &Interval::low, "lower end");
  v.field("high", &Interval::high, "upper end");
}

// Summary of per-block ms/token values.
struct Summary {
  int count = 0;
  double mean = 0, median = 0, min = 0, max = 0, rel_sd = 0;
  std::optional<Interval> ci;  // of the mean, t distribution; absent below 2 values, or where it
                               // would reach below zero for positive values
};

constexpr std::string_view struct_name(Tag<Summary>) { return "summary"; }
template <typename V>
void describe_fields(V& v, Tag<Summary>) {
  v.field("count", &Summary::count, "blocks");
  v.field("mean", &Summary::mean, "mean over blocks");
  v.field("median", &Summary::median, "median over blocks");
  v.field("min", &Summary::min, "smallest block");
  v.field("max", &Summary::max, "largest block");
  v.field("rel_sd", &Summary::rel_sd, "sample standard deviation over the mean");
  v.field("ci", &Summary::ci, "t interval of the mean; null below 2 blocks");
}
Summary summarize(std::span<const double> values, double confidence);

// Quantile of the t distribution, two-sided: P(|T_df| <= t) = confidence.
double t_quantile(double confidence, int degrees_of_freedom);

// BCa bootstrap interval of the mean with a fixed seed; absent below 2 values.
std::optional<Interval> bca_interval(std::span<const double> values, double confidence,
                                     uint64_t seed, int resamples = 2000);

// Interval of the median between two order statistics, whatever the distribution; absent where even
// the smallest and the largest value do not cover the median so often (below 6 values at 0.95).
std::optional<Interval> median_interval(std::span<const double> values, double confidence);

// Linear-interpolation percentile, p in [0, 100]; absent when there are too few values to support
// it (p99 below 100).
std::optional<double> percentile(std::span<const double> values, double p);

// The standard deviation of a normal distribution with the percentiles 10 and 90 of the values: one
// outlier of twenty changes it little. Absent below 10 values.
std::optional<double> middle_deviation(std::span<const double> values);

// Paired comparison of two engines' ms/token over the same blocks: speed-up of `candidate` over
// `baseline`.
struct PairedSpeedup {
  double speedup = 0;              // exp(mean ln(baseline / candidate))
  std::optional<Interval> ci;      // t on ln ratios, for >= 8 blocks
  std::optional<Interval> bca_ci;  // cross-check
  int blocks = 0;
};
PairedSpeedup paired_speedup(std::span<const double> baseline_ms,
                             std::span<const double> candidate_ms, double confidence,
                             uint64_t seed);

// tok/s of a set of samples: sum(tokens) / sum(time), never a mean of rates.
double tokens_per_second(std::span<const int> tokens, std::span<const double> total_ms);

// Order of `engines` engines in each of `blocks` blocks: "abba" (forward, backward, backward,
// forward) or "random" (seeded permutation).
std::vector<std::vector<int>> block_orders(int engines, int blocks, bool random, uint64_t seed);

}  // namespace mkbench
