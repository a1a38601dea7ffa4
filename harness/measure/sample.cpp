#include "harness/measure/sample.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

namespace mkbench {
namespace {

// Standard deviations of the overhead that clocks may differ by besides.
constexpr double kClockSds = 4;

// Below this multiple of L2 a step may be served from cache, and a DRAM floor means nothing.
constexpr double kL2Multiple = 4;

}  // namespace

ClockOverhead clock_overhead(std::span<const DecodeTimes> one_token) {
  const auto middle = [](std::vector<double> values) {
    const auto at = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), at, values.end());
    return *at;
  };
  // The median difference of the host's clock and another, and 1.4826 median absolute deviations.
  const auto measure = [&](double DecodeTimes::*clock, double& ms, double& sd_ms) {
    std::vector<double> differences;
    for (const DecodeTimes& times : one_token) {
      if (times.*clock > 0) differences.push_back(times.host_ms - times.*clock);
    }
    if (differences.empty()) return;
    const double median = middle(differences);
    // A clock inside the call cannot show more time than the one around it: that is no overhead.
    ms = std::max(0.0, median);
    for (double& difference : differences) difference = std::abs(difference - median);
    sd_ms = 1.4826 * middle(differences);
  };
  ClockOverhead overhead;
  measure(&DecodeTimes::event_ms, overhead.event_ms, overhead.event_sd_ms);
  measure(&DecodeTimes::device_ms, overhead.device_ms, overhead.device_sd_ms);
  return overhead;
}

std::string clock_disagreement(const DecodeTimes& times, const ClockOverhead& overhead) {
  struct Clock {
    const char* name;
    double ms, short_by_ms, sd_ms;  // short_by_ms: less than the host's clock
  };
  const std::array<Clock, 3> clocks = {
      {{"host", times.host_ms, 0, 0},
       {"events", times.event_ms, overhead.event_ms, overhead.event_sd_ms},
       {"device", times.device_ms, overhead.device_ms, overhead.device_sd_ms}}};
  for (const Clock& clock : clocks) {
    if (!std::isfinite(clock.ms) || clock.ms < 0) {
      return fmt::format("clock {} reads {} ms", clock.name, clock.ms);
    }
  }
  for (size_t i = 0; i < clocks.size(); ++i) {
    for (size_t j = i + 1; j < clocks.size(); ++j) {
      const Clock &a = clocks[i], &b = clocks[j];
      if (a.ms == 0 || b.ms == 0) continue;
      const double allowed = kClockShare * std::max(a.ms, b.ms) +
                             kClockSds * std::hypot(a.sd_ms, b.sd_ms) + kClockFloorMs;
      if (std::abs(a.ms + a.short_by_ms - b.ms - b.short_by_ms) > allowed) {
        return fmt::format(
            "clocks disagree: {} {:.3f} ms, {} {:.3f} ms (allowed {:.3f} beside an "
            "overhead of {:.3f})",
            a.name, a.ms, b.name, b.ms, allowed, b.short_by_ms - a.short_by_ms);
      }
    }
  }
  return {};
}

RooflineShare roofline_share(const ModelShape& shape, int depth, int n, bool gpu,
                             double ceiling_gb_per_s, int64_t l2_bytes) {
  RooflineShare share;
  const double mean_context = depth + (n - 1) / 2.0;
  share.bytes_per_token = static_cast<double>(shape.bytes_per_step(mean_context));
  if (!gpu) {
    share.reason = "no GPU";
    return share;
  }
  if (!(ceiling_gb_per_s > 0) || !std::isfinite(ceiling_gb_per_s)) {
    share.reason = "no read bandwidth was measured";
    return share;
  }
  share.ceiling_gb_per_s = ceiling_gb_per_s;
  share.floor_ms = share.bytes_per_token / (ceiling_gb_per_s * 1e6);  // GB/s = 1e6 bytes a ms
  if (share.bytes_per_token < kL2Multiple * static_cast<double>(l2_bytes)) {
    share.reason = fmt::format("weights and KV ({:.1f} MB) are under 4 x L2 ({:.1f} MB)",
                               share.bytes_per_token / 1e6, static_cast<double>(l2_bytes) / 1e6);
    return share;
  }
  share.applies = true;
  return share;
}

}  // namespace mkbench
