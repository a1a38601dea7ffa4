#include "harness/measure/two_level.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "references/base/error.h"

namespace mkbench {
namespace {

// Below this many blocks an interval on log ratios rests on too few pairs to be shown.
constexpr int kMinBlocksForInterval = 8;
// Bounds on how far one process's correlated blocks widen its interval. In simulation (10 to 40
// blocks, correlations of 0.6 and 0.8), intervals with looser bounds hold the mean 0 to 2 % more
// often, and one of ten is three to five times as wide.
constexpr double kHighestLag1 = 0.9;
constexpr int kLeastFreedom = 3;

ByProcess without_empty(const ByProcess& processes) {
  ByProcess kept;
  std::copy_if(processes.begin(), processes.end(), std::back_inserter(kept),
               [](const std::vector<double>& values) { return !values.empty(); });
  return kept;
}

// The values from which the interval is computed, and the factor on their variance.
struct Units {
  std::vector<double> values;
  double inflation = 1;

  // Correlated values carry less information, on their deviation as on their mean.
  int freedom() const {
    const int all = static_cast<int>(values.size()) - 1;
    return std::min(all, std::max(kLeastFreedom, static_cast<int>((all + 1) / inflation) - 1));
  }
};

Units units_of(const ByProcess& processes) {
  if (processes.size() == 1) return {processes[0], variance_inflation(drift_of(processes))};
  Units units;
  for (const std::vector<double>& values : processes) units.values.push_back(mean_of(values));
  return units;
}

// Half the width of the t interval of the mean; absent below 2 values.
std::optional<double> half_width(const Units& units, double confidence) {
  const auto n = static_cast<double>(units.values.size());
  if (n < 2) return std::nullopt;
  const double deviation = deviation_of(units.values, mean_of(units.values));
  return t_quantile(confidence, units.freedom()) * deviation * std::sqrt(units.inflation / n);
}

// Sums of products over all blocks: v is a block's value and x its place, both less the mean in its
// process; `lagged` multiplies v by the next block's v.
struct Sums {
  double vv = 0, lagged = 0, xx = 0, xv = 0;
  int blocks = 0;
};

Sums sums_of(const ByProcess& processes) {
  Sums sums;
  for (const std::vector<double>& values : processes) {
    const double mean = mean_of(values);
    const double middle = (static_cast<double>(values.size()) - 1) / 2;
    for (size_t i = 0; i < values.size(); ++i) {
      const double v = values[i] - mean, x = static_cast<double>(i) - middle;
      sums.vv += v * v;
      if (i + 1 < values.size()) sums.lagged += v * (values[i + 1] - mean);
      sums.xx += x * x;
      sums.xv += x * v;
    }
    sums.blocks += static_cast<int>(values.size());
  }
  return sums;
}

// Deviations from the mean of n values correlate less than deviations from the true mean: by about
// (1 + 3 r) / n for a correlation r of neighbours (Marriott and Pope 1954).
double without_bias(double r, double n) { return std::clamp(r + (1 + 3 * r) / n, -1.0, 1.0); }

double mean_of_means(const ByProcess& processes) {
  std::vector<double> means;
  for (const std::vector<double>& values : processes) means.push_back(mean_of(values));
  return mean_of(means);
}

// ln(baseline / candidate) of each pair.
std::vector<double> log_ratios(const PairedBlocks& blocks) {
  if (blocks.baseline_ms.size() != blocks.candidate_ms.size()) {
    throw Error(ErrorKind::kRuntime,
                "paired blocks: found " + std::to_string(blocks.baseline_ms.size()) +
                    " of the baseline and " + std::to_string(blocks.candidate_ms.size()) +
                    " of the candidate");
  }
  std::vector<double> ratios;
  for (size_t i = 0; i < blocks.baseline_ms.size(); ++i) {
    if (!(blocks.baseline_ms[i] > 0) || !(blocks.candidate_ms[i] > 0)) {
      throw Error(ErrorKind::kRuntime,
                  "paired blocks: block " + std::to_string(i) + " has a time that is not positive");
    }
    ratios.push_back(std::log(blocks.baseline_ms[i] / blocks.candidate_ms[i]));
  }
  return ratios;
}

// Mean of ln(process mean), NaN without a process, and the variance of that mean, absent below 2
// processes.
struct LogMean {
  double mean = 0;
  std::optional<double> variance;
  int processes = 0;
};

LogMean log_mean_of(const ByProcess& all) {
  std::vector<double> logs;
  for (const std::vector<double>& values : without_empty(all)) {
    const double mean = mean_of(values);
    if (!(mean > 0)) {
      throw Error(ErrorKind::kRuntime, "two runs: process " + std::to_string(logs.size()) +
                                           " has a mean time that is not positive");
    }
    logs.push_back(std::log(mean));
  }
  LogMean result;
  result.processes = static_cast<int>(logs.size());
  result.mean = mean_of(logs);
  if (logs.size() > 1) {
    const double deviation = deviation_of(logs, result.mean);
    result.variance = deviation * deviation / static_cast<double>(logs.size());
  }
  return result;
}

// Welch and Satterthwaite, rounded down, which widens the interval. At least 1: the result lies
// between the smaller side's degrees of freedom and the sum of both.
int welch_freedom(const LogMean& a, const LogMean& b) {
  const double sum = *a.variance + *b.variance;
  const auto part = [](const LogMean& side) {
    return *side.variance * *side.variance / (side.processes - 1);
  };
  return static_cast<int>(std::max(1.0, sum * sum / (part(a) + part(b))));  // max(1, NaN) is 1
}

}  // namespace

Drift drift_of(const ByProcess& all) {
  ByProcess processes;
  for (const std::vector<double>& values : all) {
    if (std::ssize(values) >= kMinBlocksForDrift) processes.push_back(values);
  }
  Drift drift;
  if (processes.empty()) return drift;
  const Sums sums = sums_of(processes);
  const double mean = mean_of_means(processes);
  if (!(sums.vv > 0) || mean == 0) return drift;
  drift.lag1 = without_bias(sums.lagged / sums.vv, static_cast<double>(sums.blocks) /
                                                       static_cast<double>(processes.size()));
  const double slope = sums.xv / sums.xx;
  drift.slope = slope / std::abs(mean);
  const int freedom = sums.blocks - static_cast<int>(processes.size()) - 1;
  const double left = std::max(0.0, sums.vv - slope * sums.xv);
  const double error = std::sqrt(left / freedom / sums.xx);
  drift.slope_p = error > 0 ? t_two_sided_p(slope / error, freedom) : 0;
  return drift;
}

double variance_inflation(const Drift& drift) {
  const double r = std::min(drift.lag1.value_or(0), kHighestLag1);
  return r > kMostLag1 ? (1 + r) / (1 - r) : 1;
}

Summary summarize_processes(const ByProcess& all, double confidence) {
  const ByProcess processes = without_empty(all);
  std::vector<double> blocks;
  for (const std::vector<double>& values : processes)
    blocks.insert(blocks.end(), values.begin(), values.end());
  Summary s = summarize(blocks, confidence);
  s.ci.reset();
  s.processes = static_cast<int>(processes.size());
  if (blocks.empty()) return s;
  const Units units = units_of(processes);
  s.mean = mean_of(units.values);
  const Drift drift = drift_of(processes);
  s.lag1 = drift.lag1;
  s.slope = drift.slope;
  s.slope_p = drift.slope_p;
  s.inflation = units.inflation;
  s.outliers = count_outliers(blocks);
  if (s.processes > 1 && s.mean != 0)
    s.process_rel_sd = deviation_of(units.values, s.mean) / std::abs(s.mean);
  const std::optional<double> half = half_width(units, confidence);
  // An interval of times that reaches below zero means too few values, too far apart.
  if (half && !(s.min > 0 && s.mean - *half <= 0)) s.ci = Interval{s.mean - *half, s.mean + *half};
  return s;
}

PairedSpeedup paired_speedup(const std::vector<PairedBlocks>& processes, double confidence,
                             std::optional<uint64_t> seed) {
  ByProcess all;
  for (const PairedBlocks& blocks : processes) all.push_back(log_ratios(blocks));
  const ByProcess ratios = without_empty(all);
  PairedSpeedup result;
  result.processes = static_cast<int>(ratios.size());
  for (const std::vector<double>& values : ratios) result.blocks += static_cast<int>(values.size());
  if (ratios.empty()) return result;
  const Units units = units_of(ratios);
  const double mean = mean_of(units.values);
  result.speedup = std::exp(mean);
  if (result.processes == 1 && result.blocks < kMinBlocksForInterval) return result;
  const double half = half_width(units, confidence).value();
  result.ci = Interval{std::exp(mean - half), std::exp(mean + half)};
  if (!seed) return result;
  if (const auto bca = bca_interval(units.values, confidence, *seed))
    result.bca_ci = Interval{std::exp(bca->low), std::exp(bca->high)};
  return result;
}

TimeRatio unpaired_ratio(const ByProcess& base, const ByProcess& head, double confidence) {
  const LogMean before = log_mean_of(base), after = log_mean_of(head);
  TimeRatio result;
  result.base_processes = before.processes;
  result.head_processes = after.processes;
  if (before.processes == 0 || after.processes == 0) return result;
  const double change = after.mean - before.mean;
  result.ratio = std::exp(change);
  if (!before.variance || !after.variance) return result;
  const double half = t_quantile(confidence, welch_freedom(before, after)) *
                      std::sqrt(*before.variance + *after.variance);
  result.ci = Interval{std::exp(change - half), std::exp(change + half)};
  result.scatter =
      std::sqrt(*before.variance * before.processes + *after.variance * after.processes);
  return result;
}

int processes_to_tell(const TimeRatio& ratio, double allowed, double confidence) {
  constexpr int kMost = 1000;
  constexpr double kNineOfTen = 1.2816;  // quantile of the normal distribution
  if (!ratio.ci) return 0;
  const double room = std::log((1 + 2 * allowed) / (1 + allowed));
  for (int n = 2; n <= kMost; ++n) {
    const double error = ratio.scatter / std::sqrt(n);
    if ((t_quantile(confidence, n - 1) + kNineOfTen) * error <= room) return n;
  }
  return 0;
}

double SpeedMargin::value() const {
  constexpr double kUncalibrated = 0.01, kLeast = 0.005, kHalfWidths = 1.5;
  return half_width > 0 ? std::max(kLeast, kHalfWidths * half_width) : kUncalibrated;
}

std::string speed_verdict(const Interval& speedup, double margin) {
  if (speedup.low > 1 + margin) return "FASTER";
  if (speedup.high < 1 / (1 + margin)) return "SLOWER";
  const double same = std::min(margin, kMostSame);
  return speedup.low >= 1 / (1 + same) && speedup.high <= 1 + same ? "SAME" : "INCONCLUSIVE";
}

}  // namespace mkbench
