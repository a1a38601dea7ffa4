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
  int count = 0, processes = 1;
  double mean = 0, median = 0, min = 0, max = 0, rel_sd = 0;
  // t interval of the mean; absent below 2 values, or if it would reach below zero for positive
  // values.
  std::optional<Interval> ci;
  // Written by summarize_processes().
  std::optional<double> process_rel_sd;        // absent with one process
  std::optional<double> lag1, slope, slope_p;  // two_level.h: Drift
  double inflation = 1;
  int outliers = 0;  // count_outliers()
};

constexpr std::string_view struct_name(Tag<Summary>) { return "summary"; }
template <typename V>
void describe_fields(V& v, Tag<Summary>) {
  v.field("count", &Summary::count, "blocks");
  v.field("processes", &Summary::processes, "processes that the blocks were taken in");
  v.field("mean", &Summary::mean, "mean of the processes' means; with one process, of its blocks");
  v.field("ci", &Summary::ci,
          "t interval of the mean over processes; with one process over its blocks, inflated and "
          "with count / inflation - 1 degrees of freedom (at least 3, at most count - 1); null "
          "below 2 values, or if it would reach below zero");
  v.field("median", &Summary::median, "median over blocks");
  v.field("min", &Summary::min, "smallest block");
  v.field("max", &Summary::max, "largest block");
  v.field("rel_sd", &Summary::rel_sd, "sample standard deviation of blocks over their mean");
  v.field("process_rel_sd", &Summary::process_rel_sd,
          "standard deviation of the processes' means over the mean; null with one process");
  v.field("lag1", &Summary::lag1,
          "correlation of neighbouring blocks of a process, its bias in short series removed; null "
          "if no process has 4 blocks, or if all are equal");
  v.field("inflation", &Summary::inflation,
          "factor on the variance: (1 + lag1) / (1 - lag1) for one process with lag1 "
          "above 0.2 (counted as 0.9 at the most), else 1");
  v.field("slope", &Summary::slope, "trend: change from block to block, as a share of the mean");
  v.field("slope_p", &Summary::slope_p,
          "probability of a slope so steep among independent blocks, two-sided");
  v.field("outliers", &Summary::outliers,
          "blocks more than three interquartile ranges above or below the middle half");
}
// Treats the values as independent ones of one process.
Summary summarize(std::span<const double> values, double confidence);

double mean_of(std::span<const double> values);
// Sample standard deviation (n - 1).
double deviation_of(std::span<const double> values, double mean);

// Quantile of the t distribution, two-sided: P(|T_df| <= t) = confidence.
double t_quantile(double confidence, int degrees_of_freedom);

// P(|T_df| >= |t|).
double t_two_sided_p(double t, int degrees_of_freedom);

// Exact one-sided upper limit of a binomial rate (Clopper and Pearson): the largest rate at which
// `seen` or fewer events in `trials` independent trials still have a chance of 1 - confidence. With
// no event seen it is just below 3 / trials at 95 %. 1 without trials.
double rate_limit(int64_t seen, int64_t trials, double confidence);
// Two-sided limits of that rate; with no event seen, 0 and rate_limit(). [0, 1] without trials.
Interval rate_interval(int64_t seen, int64_t trials, double confidence);

// BCa bootstrap interval of the mean with a fixed seed; absent below 2 values.
std::optional<Interval> bca_interval(std::span<const double> values, double confidence,
                                     uint64_t seed, int resamples = 2000);

// Interval of the median between two order statistics, whatever the distribution; absent if even
// the smallest and the largest value do not reach the confidence (below 6 values at 0.95).
std::optional<Interval> median_interval(std::span<const double> values, double confidence);

// Linear-interpolation percentile, p in [0, 100]; absent when there are too few values to support
// it (p99 below 100).
std::optional<double> percentile(std::span<const double> values, double p);

// How many values lie more than three interquartile ranges above or below the middle half; 0 below
// 4 values.
int count_outliers(std::span<const double> values);

// The standard deviation of a normal distribution with the percentiles 10 and 90 of the values: one
// outlier of twenty changes it little. Absent below 10 values.
std::optional<double> middle_deviation(std::span<const double> values);

// Order of `engines` engines in each of `blocks` blocks: "abba" (forward, backward, backward,
// forward) or "random" (seeded permutation).
std::vector<std::vector<int>> block_orders(int engines, int blocks, bool random, uint64_t seed);

}  // namespace mkbench
