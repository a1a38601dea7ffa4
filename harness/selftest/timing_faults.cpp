#include "harness/selftest/timing_faults.h"

#include <fmt/format.h>

#include <algorithm>

#include "harness/measure/statistics.h"

namespace mkbench {
namespace {

constexpr double kConfidence = 0.95;
// A wider interval of a ratio says nothing: high over low.
constexpr double kWidest = 1.5;
// What a prefill() that puts its work off may take of the time to first token, and what one that
// does its work takes at least.
constexpr double kMostDeferred = 0.1, kLeastSound = 0.5;

std::string deferred_surprise(const TimingBand& band, const TimingOutcome& found,
                              const TimingOutcome& to) {
  if (found.prefill_share > kMostDeferred || to.prefill_share < kLeastSound) {
    return fmt::format(
        "prefill: {:.3g} of the time to first token, and {:.3g} of the sound engine's, wanted at "
        "most {} and at least {}",
        found.prefill_share, to.prefill_share, kMostDeferred, kLeastSound);
  }
  std::vector<double> ratios;
  for (const auto& [block, ms] : found.block_ms) {
    const auto other = to.block_ms.find(block);
    if (other != to.block_ms.end()) ratios.push_back(ms / other->second);
  }
  const auto interval = median_interval(ratios, kConfidence);
  if (!interval) return fmt::format("times: {} blocks of both give no interval", ratios.size());
  const std::string text =
      fmt::format("times to first token: {:.3f} to {:.3f} of the sound engine's, block by block",
                  interval->low, interval->high);
  if (interval->low > band.high || interval->high < band.low)
    return fmt::format("{}, wanted within {} to {}", text, band.low, band.high);
  if (interval->high > kWidest * interval->low)
    return fmt::format("{}, wanted ends within a factor of {}", text, kWidest);
  return "";
}

}  // namespace

const std::vector<TimingRunInfo>& timing_runs() {
  static const std::vector<TimingRunInfo> table = {
      // tests/plugins/timing_faults.h knows the clock by these 31 tokens.
      {TimingRun::kDecode, {"--n-gen", "31", "--blocks", "8"}},
      // On a card, kernels of a few rows take less time than their launches do, and launches differ
      // by several percent between processes. Attention over so many rows takes longer than both.
      {TimingRun::kPrefill, {"--blocks", "12"}, {"--n-prompt", "256"}, {"--n-prompt", "2048"}},
      // A block of 31 tokens (5 ms on a CPU) can pass between two turns of a thread that spins.
      {TimingRun::kLong, {"--n-gen", "256", "--blocks", "8"}},
      {TimingRun::kShortTimeout, {"--n-gen", "31", "--blocks", "8", "--timeout", "5"}},
  };
  return table;
}

const std::vector<TimingFault>& timing_faults() {
  using V = Verdict;
  constexpr TimingRun kDecode = TimingRun::kDecode;
  const std::vector<TimingEnd> kPasses = {{V::kPass, ""}};
  // The ids came during a later and shorter call.
  constexpr TimingEnd kLateWrite = {V::kIntegrity, "them was written"};
  // Threads of its own can keep it from answering in time.
  const std::vector<TimingEnd> kPassesLate = {{V::kPass, ""}, {V::kIntegrity, "clocks disagree"}};
  const std::vector<TimingEnd> kState = {{V::kIntegrity, "state receipt"}};
  // After many a late id tiny goes on with the same text as after another one, and so does an engine
  // with a small fault; its K and V differ all the same.
  const std::vector<TimingEnd> kTokenOrState = {{V::kFailToken, "late id"},
                                                {V::kIntegrity, "state receipt"}};
  // A cheat of this table takes less than 1 % of the honest time. On a CPU that other programs use,
  // honest times of one case differ by a third.
  constexpr TimingBand kHonestCpu = {TimesCompared::kToSound, 0.6, 1.7};
  constexpr TimingBand kHonestCuda = {TimesCompared::kToSound, 0.9, 1.1};
  static const std::vector<TimingFault> table = {
      {"T1",
       "remembers ids by prompt and gives them back",
       true,
       true,
       kDecode,
       false,
       {{"remembers_prompts", kTokenOrState}}},
      {"T1",
       "remembers ids by prompt and last id: finds nothing",
       true,
       true,
       kDecode,
       false,
       {{"remembers_inputs", kPasses}},
       kHonestCpu,
       kHonestCuda},
      {"T2",
       "decodes ahead inside prefill()",
       true,
       true,
       kDecode,
       false,
       {{"decodes_ahead", kTokenOrState}}},
      {"T3",
       "prefill() keeps its ids, the first decode does the work",
       true,
       true,
       TimingRun::kPrefill,
       false,
       {{"defers_prefill", kPasses}},
       {TimesCompared::kDeferred, 0.95, 1.05},
       {TimesCompared::kDeferred, 0.95, 1.05}},
      {"T4",
       "leaves K and V with 3 bits of mantissa",
       true,
       true,
       kDecode,
       false,
       {{"few_bits", kState}}},
      {"T4",
       "leaves out a norm's weight",
       true,
       true,
       kDecode,
       false,
       {{"no_norm", kTokenOrState}}},
      {"T4",
       "leaves out half of the heads",
       true,
       false,
       kDecode,
       false,
       {{"half_the_heads", kTokenOrState}}},
      {"T5",
       "returns before its ids are written, the last one excepted",
       true,
       true,
       kDecode,
       false,
       {{"last_id_first", {{V::kIntegrity, "a receipt is -1"}, kLateWrite}}}},
      {"T5",
       "returns before its ids are written",
       true,
       true,
       kDecode,
       false,
       {{"ids_later", {{V::kFailToken, "receipts: found 0, wanted 31"}, kLateWrite}}}},
      {"T6",
       "stops early and repeats the last id",
       true,
       true,
       kDecode,
       false,
       {{"pads", kTokenOrState}}},
      {"T7",
       "spins while others are timed",
       true,
       true,
       TimingRun::kLong,
       true,
       {{"spins", kPassesLate}},
       {TimesCompared::kSoundAlone, 0, 1.6},
       {TimesCompared::kSoundAlone, 0, 1.1}},
      {"T8",
       "does not read 5 % of the LM head",
       true,
       true,
       kDecode,
       false,
       // The rows that it leaves out never win, and no state depends on them.
       {{"part_of_the_head", kPasses}},
       {},
       {},
       {{V::kIntegrity, "tiles are not read"}}},
      {"T9",
       "takes longer on every 7th block",
       true,
       true,
       kDecode,
       false,
       {{"uneven", kPasses}},
       {},
       {},
       {},
       "the interval and rel_sd cover it, but no report names trends or outliers yet"},
      {"T10",
       "is a copy of the sound engine",
       true,
       true,
       kDecode,
       false,
       {{"sound_copy", kPasses}},
       kHonestCpu,
       kHonestCuda,
       {},
       "two candidates are not compared yet: that they are the SAME stands in their intervals"},
      {"T11",
       "crashes in turn with a sound neighbour",
       true,
       true,
       kDecode,
       false,
       {{"crashes", {{V::kRuntimeError, "signal 11"}}}}},
      {"T12",
       "is right, and slow in prefill",
       true,
       true,
       kDecode,
       false,
       {{"slow_prefill", kPasses}}},
      {"T13",
       "is wrong from position 25 on, then hangs",
       true,
       true,
       TimingRun::kShortTimeout,
       false,
       {{"wrong_then_hangs", {{V::kFailToken, "no progress for"}}}}},
      {"T14",
       "leaves work on the card after its call",
       false,
       true,
       TimingRun::kLong,
       true,
       {{"../left_thread", {{V::kIntegrity, "left work on its device"}}},
        {"../left_context", {{V::kIntegrity, "left work on its device"}}}},
       {},
       {TimesCompared::kSoundAlone, 0, 1.1}},
  };
  return table;
}

TimingOutcome timing_outcome(const EngineReport& engine) {
  TimingOutcome outcome{engine.verdict, engine.reasons, static_cast<int>(engine.samples.size())};
  if (engine.ms_per_tok) {
    outcome.fastest_ms = engine.ms_per_tok->min;
    outcome.interval = engine.ms_per_tok->ci.has_value();
  }
  std::vector<double> shares;
  for (const Sample& sample : engine.samples) {
    if (!sample.valid) continue;
    outcome.block_ms[sample.block] = sample.ms_per_token();
    if (sample.prefill_ms > 0) shares.push_back(sample.prefill_ms / sample.times.host_ms);
  }
  outcome.prefill_share = summarize(shares, kConfidence).median;
  return outcome;
}

std::string names_of(const std::vector<TimingEnd>& ends) {
  std::string names;
  for (const TimingEnd& end : ends) {
    const std::string name(verdict_name(end.verdict));
    if (names.find(name) == std::string::npos) names += (names.empty() ? "" : " or ") + name;
  }
  return names;
}

std::string end_surprise(const std::vector<TimingEnd>& ends, Verdict verdict,
                         const std::vector<std::string>& reasons) {
  const auto says = [&](std::string_view reason) {
    if (reason.empty()) return reasons.empty();
    return std::any_of(reasons.begin(), reasons.end(), [&](const std::string& text) {
      return text.find(reason) != std::string::npos;
    });
  };
  std::string texts;
  for (const TimingEnd& end : ends) {
    if (end.verdict == verdict && says(end.reason)) return "";
    texts += fmt::format("{}{} '{}'", texts.empty() ? "" : " or ", verdict_name(end.verdict),
                         end.reason);
  }
  return fmt::format("found {} '{}', wanted {}", verdict_name(verdict), fmt::join(reasons, "; "),
                     texts);
}

std::string surprise(const TimingEngine& wanted, const TimingOutcome& found) {
  const std::string text = end_surprise(wanted.ends, found.verdict, found.reasons);
  if (!text.empty()) return text;
  if (times_allowed(found.verdict) && found.fastest_ms <= 0) return "times: it passed and has none";
  if (!times_allowed(found.verdict) && found.fastest_ms > 0) return "times: shown, wanted none";
  return "";
}

std::string control_surprise(const TimingOutcome& sound, int blocks) {
  std::string text = surprise({kSoundLibrary, {{Verdict::kPass, ""}}}, sound);
  if (text.empty() && sound.samples != blocks)
    text = fmt::format("samples: found {}, wanted {}", sound.samples, blocks);
  if (text.empty() && !sound.interval) text = "its time has no interval";
  return text;
}

std::string times_surprise(const TimingBand& band, const TimingOutcome& found,
                           const TimingOutcome& to) {
  if (band.compared == TimesCompared::kNone) return "";
  if (band.compared == TimesCompared::kDeferred) return deferred_surprise(band, found, to);
  const double ratio = to.fastest_ms > 0 ? found.fastest_ms / to.fastest_ms : 0;
  if (ratio >= band.low && ratio <= band.high) return "";
  return fmt::format("times: {:.4g} ms a token are {:.2f} of {:.4g} ms, wanted {} to {}",
                     found.fastest_ms, ratio, to.fastest_ms, band.low, band.high);
}

}  // namespace mkbench
