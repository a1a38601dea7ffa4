#include "harness/measure/sample.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace mkbench {
namespace {

// Two clocks around one decode may differ by the overhead of the call and by their granularity.
constexpr double kClockShare = 0.01, kClockFloorMs = 0.020;

// Below this multiple of L2 a step may be served from cache, and a DRAM floor means nothing.
constexpr double kL2Multiple = 4;

}  // namespace

std::string clock_disagreement(const DecodeTimes& times) {
  struct Clock {
    const char* name;
    double ms;
  };
  const std::array<Clock, 3> clocks = {
      {{"host", times.host_ms}, {"events", times.event_ms}, {"device", times.device_ms}}};
  for (const Clock& clock : clocks) {
    if (!std::isfinite(clock.ms) || clock.ms < 0) {
      return fmt::format("clock {} reads {} ms", clock.name, clock.ms);
    }
  }
  for (size_t a = 0; a < clocks.size(); ++a) {
    for (size_t b = a + 1; b < clocks.size(); ++b) {
      if (clocks[a].ms == 0 || clocks[b].ms == 0) continue;
      const double allowed = kClockShare * std::max(clocks[a].ms, clocks[b].ms) + kClockFloorMs;
      if (std::abs(clocks[a].ms - clocks[b].ms) > allowed) {
        return fmt::format("clocks disagree: {} {:.3f} ms, {} {:.3f} ms (allowed {:.3f})",
                           clocks[a].name, clocks[a].ms, clocks[b].name, clocks[b].ms, allowed);
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
