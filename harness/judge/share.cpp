#include "harness/judge/share.h"

#include <fmt/format.h>

#include <algorithm>

#include "harness/judge/comparisons.h"
#include "harness/report/readings.h"

namespace mkbench {
namespace {

// Confidence of a two-sided interval whose upper end is the 99.9 % limit.
constexpr double kUpperLimit = 0.998;
// If all of this many samples lie under the bound, chance (2^-10) does not explain it; the
// confidence limit, which is wide with few processes, is then not needed.
constexpr int kManySamples = 10;

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

void fill_share(const CeilingReport& ceiling, EngineReport& e, double confidence, uint64_t seed) {
  e.share_ci.reset();
  e.share_note.clear();
  if (!ceiling.ms_per_tok) {
    e.share = {std::nullopt, ceiling.reason};
    return;
  }
  if (is_lossy(e)) {
    e.share = {std::nullopt,
               e.name + " is quantised (class lossy), and may read fewer bytes than the ceiling"};
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
  if (e.samples.empty() || is_lossy(e) || !(bound.least_ms > 0)) return {};
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
