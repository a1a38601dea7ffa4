#include "harness/report/share.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace mkbench {
namespace {

// Two-sided, so that 99.9 % of the values lie under the upper end.
constexpr double kUpperLimit = 0.998;

std::map<int, double> by_block(std::span<const Sample> samples) {
  std::map<int, double> result;
  for (const Sample& s : samples) {
    if (s.valid) result[s.block] = s.ms_per_token();
  }
  return result;
}

}  // namespace

PairedTimes paired_times(std::span<const Sample> first, std::span<const Sample> second) {
  PairedTimes times;
  const std::map<int, double> others = by_block(second);
  for (const auto& [block, ms] : by_block(first)) {
    const auto paired = others.find(block);
    if (paired == others.end()) continue;
    times.first.push_back(ms);
    times.second.push_back(paired->second);
  }
  return times;
}

void fill_ceiling(CaseReport& c, double confidence) {
  CeilingReport& ceiling = c.ceiling;
  std::vector<double> ms_per_token;
  std::vector<int> tokens;
  std::vector<double> ms;
  for (const Sample& s : ceiling.samples) {
    ms_per_token.push_back(s.ms_per_token());
    tokens.push_back(s.tokens);
    ms.push_back(s.times.host_ms);
  }
  ceiling.ms_per_tok.reset();
  if (ms_per_token.empty()) {
    if (ceiling.reason.empty()) ceiling.reason = "no samples of the ceiling were taken";
    ceiling.gb_per_s = {std::nullopt, ceiling.reason};
    return;
  }
  ceiling.ms_per_tok = summarize(ms_per_token, confidence);
  ceiling.gb_per_s = {c.memory.bytes_per_token * tokens_per_second(tokens, ms) / 1e9, {}};
}

void fill_share(const CeilingReport& ceiling, EngineReport& e, double confidence, uint64_t seed) {
  e.share_ci.reset();
  e.share_note.clear();
  if (!ceiling.ms_per_tok) {
    e.share = {std::nullopt, ceiling.reason};
    return;
  }
  const auto [ceiling_ms, engine_ms] = paired_times(ceiling.samples, e.samples);
  if (ceiling_ms.empty()) {
    e.share = {std::nullopt, "no block holds both the ceiling and the engine"};
    return;
  }
  const PairedSpeedup share = paired_speedup(ceiling_ms, engine_ms, confidence, seed);
  e.share = {share.speedup, {}};
  e.share_ci = share.ci;
  if (share.ci && share.ci->low > 1) e.share_note = kCeilingNotFound;
}

std::string impossible_reason(std::span<const Sample> samples, const MemoryBound& bound) {
  if (samples.empty() || !(bound.least_ms > 0)) return {};
  std::vector<double> ms;
  for (const Sample& s : samples) ms.push_back(s.ms_per_token());
  const Summary times = summarize(ms, kUpperLimit);
  const double upper = times.ci ? times.ci->high : times.max;
  if (upper >= bound.least_ms) return {};
  const std::string what = times.ci ? fmt::format("upper 99.9 % limit of {} samples", times.count)
                                    : "the slowest sample";
  return fmt::format(
      "faster than the memory's pins: {:.4f} ms/token ({}) is under the {:.4f} ms in which {:.1f} "
      "MB "
      "a token, less {:.1f} MB that L2 can keep, cross at {:.0f} GB/s",
      upper, what, bound.least_ms, bound.bytes_per_token / 1e6, bound.cached_bytes / 1e6,
      bound.pin_gb_per_s);
}

}  // namespace mkbench
