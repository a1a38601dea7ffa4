#include "harness/measure/sample.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>
#include <optional>
#include <vector>

#include "harness/measure/statistics.h"

namespace mkbench {
namespace {

// All samples together are judged only if they can show a clock that is wrong by kSmallLie of the
// time, that is, if such an error is at least kLieSds standard deviations.
constexpr double kSmallLie = 0.03, kLieSds = 3.5;

struct Spread {
  double middle, sd;
};

// The mean of the middle 80 %, and the larger of two estimates of a normal standard deviation: from
// the median absolute deviation, and from the middle 80 %. One outlier of twenty changes little;
// two groups of values show as a spread. Needs at least one value.
Spread spread_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const auto cut = static_cast<std::ptrdiff_t>(values.size() / 10);
  const auto begin = values.begin() + cut, end = values.end() - cut;
  Spread spread{std::accumulate(begin, end, 0.0) / static_cast<double>(end - begin), 0};
  spread.sd = middle_deviation(values).value_or(0);
  const double median = percentile(values, 50).value_or(values.front());
  for (double& value : values) value = std::abs(value - median);
  spread.sd = std::max(spread.sd, 1.4826 * percentile(values, 50).value_or(0));
  return spread;
}

struct ClockUse {
  const char* name;
  double DecodeTimes::*ms;
  double ClockOverhead::*short_by_ms;  // host's clock less this one; null for the host's own
  double ClockOverhead::*sd_ms;

  double overhead(const ClockOverhead& o) const {
    return short_by_ms != nullptr ? o.*short_by_ms : 0;
  }
  double sd(const ClockOverhead& o) const { return sd_ms != nullptr ? o.*sd_ms : 0; }
};

constexpr ClockUse kClocks[] = {
    {"host", &DecodeTimes::host_ms, nullptr, nullptr},
    {"events", &DecodeTimes::event_ms, &ClockOverhead::event_ms, &ClockOverhead::event_sd_ms},
    {"device", &DecodeTimes::device_ms, &ClockOverhead::device_ms, &ClockOverhead::device_sd_ms}};

// Calls check(a, b) for each pair of clocks until it returns a text.
template <typename Check>
std::string check_pairs(const Check& check) {
  for (size_t i = 0; i < std::size(kClocks); ++i) {
    for (size_t j = i + 1; j < std::size(kClocks); ++j) {
      std::string text = check(kClocks[i], kClocks[j]);
      if (!text.empty()) return text;
    }
  }
  return {};
}

}  // namespace

ClockOverhead clock_overhead(std::span<const DecodeTimes> one_token, double crossing_sd_ms) {
  const auto measure = [&](double DecodeTimes::*clock, double& ms, double& sd_ms) {
    std::vector<double> differences;
    for (const DecodeTimes& times : one_token) {
      if (times.*clock > 0) differences.push_back(times.host_ms - times.*clock);
    }
    if (differences.empty()) return;
    // A clock inside the call cannot show more time than the one around it: no overhead below 0.
    const Spread spread = spread_of(std::move(differences));
    ms = std::max(0.0, spread.middle);
    sd_ms = std::max(spread.sd, crossing_sd_ms);
  };
  ClockOverhead overhead;
  overhead.runs = static_cast<int>(one_token.size());
  measure(&DecodeTimes::event_ms, overhead.event_ms, overhead.event_sd_ms);
  measure(&DecodeTimes::device_ms, overhead.device_ms, overhead.device_sd_ms);
  return overhead;
}

std::string clock_disagreement(const DecodeTimes& times, const ClockOverhead& overhead) {
  for (const ClockUse& clock : kClocks) {
    const double ms = times.*clock.ms;
    if (!std::isfinite(ms) || ms < 0) return fmt::format("clock {} reads {} ms", clock.name, ms);
  }
  return check_pairs([&](const ClockUse& a, const ClockUse& b) -> std::string {
    const double a_ms = times.*a.ms, b_ms = times.*b.ms;
    if (a_ms == 0 || b_ms == 0) return {};
    const double between = b.overhead(overhead) - a.overhead(overhead);
    const double allowed =
        kClockShare * std::max(a_ms, b_ms) + kClockSds * std::hypot(a.sd(overhead), b.sd(overhead));
    if (std::abs(a_ms - b_ms - between) <= allowed) return {};
    return fmt::format(
        "clocks disagree: {} {:.3f} ms, {} {:.3f} ms (allowed {:.3f} beside an "
        "overhead of {:.3f})",
        a.name, a_ms, b.name, b_ms, allowed, between);
  });
}

std::string lasting_disagreement(std::span<const Sample> samples, const ClockOverhead& overhead) {
  if (overhead.runs == 0) return {};
  return check_pairs([&](const ClockUse& a, const ClockUse& b) -> std::string {
    const double between = b.overhead(overhead) - a.overhead(overhead);
    std::vector<double> differences;
    double time = 0, sum = 0;
    for (const Sample& sample : samples) {
      const double a_ms = sample.times.*a.ms, b_ms = sample.times.*b.ms;
      if (!(a_ms > 0) || !(b_ms > 0)) continue;
      differences.push_back(a_ms - b_ms - between);
      sum += differences.back();
      time += std::max(a_ms, b_ms);
    }
    if (differences.empty()) return {};
    const auto n = static_cast<double>(differences.size());
    // Pooled deviation of the runs that gave the overhead and of the samples.
    const double of_runs = std::hypot(a.sd(overhead), b.sd(overhead));
    const double of_samples = spread_of(differences).sd;
    const double variance =
        (overhead.runs * of_runs * of_runs + n * of_samples * of_samples) / (overhead.runs + n);
    if (kSmallLie * time / n < kLieSds * std::sqrt(variance)) return {};
    // More runs than kOverheadRuns tell little more, because a host's overhead stays the same for
    // seconds (H200, 2026-11: 30 us in most blocks, 90 us in some).
    const double runs = std::min(overhead.runs, kOverheadRuns);
    const double error = std::sqrt(variance * (1 / n + 1 / runs));
    const double allowed = kClockShare * time / n + kClockSds * error;
    if (std::abs(sum / n) <= allowed) return {};
    return fmt::format(
        "clocks disagree in all samples: {} and {} differ by {:.3f} ms beside the overhead of "
        "{:.3f} (mean of {:.0f}, allowed {:.3f})",
        a.name, b.name, sum / n, between, n, allowed);
  });
}

std::string served_from_l2(double bytes, double l2_bytes) {
  if (bytes >= kL2Multiple * l2_bytes) return {};
  return fmt::format("weights and KV ({:.1f} MB) are under {:g} x L2 ({:.1f} MB)", bytes / 1e6,
                     kL2Multiple, l2_bytes / 1e6);
}

MemoryBound memory_bound(const ModelConfig& config, int depth, int n, int n_prompt,
                         double pin_gb_per_s, int64_t l2_bytes) {
  MemoryBound bound;
  if (!config.shape.is_whole() && !config.reads.known()) return bound;
  const bool prefill = n_prompt > 0;
  const double tokens = prefill ? n_prompt : 1;
  const double context = prefill ? 0 : depth + std::max(0, n - 1) / 2.0;
  bound.bytes_per_token = static_cast<double>(config.bytes_per_step(context)) / tokens;
  bound.cached_bytes = std::min(bound.bytes_per_token, static_cast<double>(l2_bytes) / tokens);
  if (!(pin_gb_per_s > 0) || !std::isfinite(pin_gb_per_s)) return bound;
  bound.pin_gb_per_s = pin_gb_per_s;
  // GB/s = 1e6 bytes a ms
  bound.least_ms = (bound.bytes_per_token - bound.cached_bytes) / (pin_gb_per_s * 1e6);
  return bound;
}

}  // namespace mkbench
