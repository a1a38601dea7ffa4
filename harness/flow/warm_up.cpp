#include "harness/flow/warm_up.h"

#include <algorithm>
#include <cmath>

namespace mkbench {
namespace {

constexpr int kFirstUnits = 8;

struct Window {
  double ms = 0, clock_units = 0;
  int units = 0;

  void add(int n, const WarmRun& run) {
    ms += run.ms;
    clock_units += n * run.sm_ghz;
    units += n;
  }
  double ms_per_unit() const { return ms / units; }
  double ghz() const { return clock_units / units; }
};

bool within(const std::optional<double>& change) {
  return !change || std::abs(*change) <= kWarmAgreement;
}

// Compares two windows; returns whether they agree.
bool agree(const Window& before, const Window& now, WarmUp& result) {
  result.time_change.reset();
  result.clock_change.reset();
  if (before.ms > 0) result.time_change = now.ms_per_unit() / before.ms_per_unit() - 1;
  if (before.ghz() > 0 && now.ghz() > 0) result.clock_change = now.ghz() / before.ghz() - 1;
  return result.time_change && within(result.time_change) && within(result.clock_change);
}

}  // namespace

WarmUp warm_up(int units, const RunUnits& run, const Now& now_s) {
  WarmUp result;
  const double begin_s = now_s();
  const int first = std::min(units, kFirstUnits);
  const double unit_ms = run(first).ms / first;
  result.runs = 1;
  const double fitting = unit_ms > 0 ? 1000 * kWarmWindowS / 2 / unit_ms : units;
  const int count = static_cast<int>(std::clamp(fitting, 1.0, static_cast<double>(units)));
  std::optional<Window> before;
  double spent_s = now_s() - begin_s;
  while (!result.settled && spent_s < kMostWarmUpS) {
    Window window;
    const double window_begin_s = now_s();
    do {
      window.add(count, run(count));
      ++result.runs;
    } while (now_s() - window_begin_s < kWarmWindowS);
    result.settled = before && agree(*before, window, result);
    before = window;
    spent_s = now_s() - begin_s;
  }
  result.seconds = spent_s;
  return result;
}

}  // namespace mkbench
