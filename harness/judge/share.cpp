#include "harness/judge/share.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "harness/judge/comparisons.h"
#include "harness/measure/statistics.h"
#include "harness/report/readings.h"

namespace mkbench {
namespace {

// Confidence of a two-sided interval whose upper end is the 99.9 % limit.
constexpr double kUpperLimit = 0.998;
// If all of this many samples lie under the bound, chance (2^-10) does not explain it; the
// confidence limit, which is wide with few processes, is then not needed.
constexpr int kManySamples = 10;
// The ceiling reaches 92 to 96 % of the pins' rate, equal within 1 % in all processes (H100, H200);
// on a card that something else uses it has read at 53 %.
constexpr double kLeastOfPins = 0.85, kMostApart = 0.03;

}  // namespace

void fill_ceiling(CaseReport& c, double confidence) {
  CeilingReport& ceiling = c.ceiling;
  ceiling.ms_per_tok.reset();
  const auto without_time =
      std::find_if(ceiling.samples.begin(), ceiling.samples.end(),
                   [](const Sample& s) { return s.valid && !(s.ms_per_token() > 0); });
  if (ceiling.samples.empty()) {
    if (ceiling.reason.empty()) ceiling.reason = "no samples of the ceiling were taken";
    ceiling.gb_per_s = {std::nullopt, ceiling.reason};
    return;
  }
  if (without_time != ceiling.samples.end()) {
    ceiling.reason =
        fmt::format("the ceiling's sample of block {} has no time: {} ms for {} tokens",
                    without_time->block, without_time->times.host_ms, without_time->tokens);
    ceiling.gb_per_s = {std::nullopt, ceiling.reason};
    return;
  }
  ceiling.ms_per_tok = summarize_processes(times_by_process(ceiling.samples), confidence);
  ceiling.gb_per_s = {c.memory.bytes_per_token / (1e6 * ceiling.ms_per_tok->mean), {}};
}

std::string ceiling_doubt(const CaseReport& c) {
  if (!c.ceiling.ms_per_tok) return {};
  const double gb_per_s = c.ceiling.gb_per_s.value.value_or(0), pins = c.memory.pin_gb_per_s;
  if (pins > 0 && gb_per_s < kLeastOfPins * pins) {
    return fmt::format(
        "the ceiling reads {:.0f} GB/s, {:.0f} % of the rate of the memory's pins, wanted at least "
        "{:.0f} %: something else slows the card",
        gb_per_s, 100 * gb_per_s / pins, 100 * kLeastOfPins);
  }
  std::vector<double> means;
  for (const std::vector<double>& ms : times_by_process(c.ceiling.samples))
    means.push_back(mean_of(ms));
  const auto [least, most] = std::minmax_element(means.begin(), means.end());
  if (*most < (1 + kMostApart) * *least) return {};
  return fmt::format(
      "the ceiling takes {:.4f} ms a token in one process and {:.4f} ms in another, wanted less "
      "than {:.0f} % apart: something else slows the card at times",
      *least, *most, 100 * kMostApart);
}

void fill_share(const CeilingReport& ceiling, EngineReport& e, double confidence, uint64_t seed) {
  e.share_ci.reset();
  e.share_note.clear();
  if (!ceiling.ms_per_tok) {
    e.share = {std::nullopt, ceiling.reason};
    return;
  }
  if (!reads_known(e)) {
    e.share = {std::nullopt, e.name + " is quantised, and may read fewer bytes than the ceiling"};
    return;
  }
  const PairedSpeedup share =
      paired_speedup(paired_blocks(ceiling.samples, e.samples), confidence, seed);
  if (share.blocks == 0) {
    e.share = {std::nullopt, "no block holds both the ceiling and the engine"};
    return;
  }
  e.share = {share.speedup, {}};
  e.share_ci = share.ci;
  if (share.ci && share.ci->low > 1) e.share_note = kCeilingNotFound;
}

std::string impossible_reason(const EngineReport& e, const MemoryBound& bound) {
  if (e.samples.empty() || !reads_known(e) || !(bound.least_ms > 0)) return {};
  const Summary times = summarize_processes(times_by_process(e.samples), kUpperLimit);
  const bool slowest = !times.ci || (times.count >= kManySamples && times.max < times.ci->high);
  const double upper = slowest ? times.max : times.ci->high;
  if (upper >= bound.least_ms) return {};
  const std::string what = slowest ? fmt::format("the slowest of {} samples", times.count)
                                   : fmt::format("upper 99.9 % limit of {} samples", times.count);
  return fmt::format(
      "faster than the memory's pins: {:.4f} ms/token ({}) is under the {:.4f} ms in which "
      "{:.1f} MB a token, less {:.1f} MB that L2 can keep, cross at {:.0f} GB/s",
      upper, what, bound.least_ms, bound.bytes_per_token / 1e6, bound.cached_bytes / 1e6,
      bound.pin_gb_per_s);
}

}  // namespace mkbench
