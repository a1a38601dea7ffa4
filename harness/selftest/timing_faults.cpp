#include "harness/selftest/timing_faults.h"

#include <fmt/format.h>

#include <algorithm>

#include "harness/measure/two_level.h"

namespace mkbench {
namespace {

constexpr double kConfidence = 0.95;
// Largest quotient of an interval's upper and lower ends; a wider interval proves nothing.
constexpr double kWidest = 1.5;
// Shares of the time to first token: at most kMostDeferred for a prefill() that postpones its work,
// at least kLeastSound for one that does it.
constexpr double kMostDeferred = 0.1, kLeastSound = 0.5;
// What T9 does (tests/plugins/timing_faults.h): every 7th block of 31 tokens takes 30 ms longer.
constexpr int kUnevenEvery = 7, kUnevenTokens = 31;
constexpr double kUnevenMs = 30;

std::string ends_of(const Interval& i) { return fmt::format("{:.4g} to {:.4g} ms", i.low, i.high); }

std::string caution_surprise(bool wanted, const std::string& found) {
  if (found.empty() != wanted) return "";
  return wanted ? "caution: none, wanted 'quicker where nobody looks'"
                : fmt::format("caution: found '{}', wanted none", found);
}

std::string beside_surprise(const TimingOutcome& found, const TimingOutcome& to) {
  if (!found.interval || !to.interval) return "times: no interval of the sound engine";
  if (found.interval->low <= to.interval->high * (1 + SpeedMargin{}.value())) return "";
  return fmt::format(
      "times: the sound engine took {} a token beside the library, {} alone: wanted no slower",
      ends_of(*found.interval), ends_of(*to.interval));
}

std::string uneven_surprise(const TimingOutcome& found, const TimingOutcome& to) {
  if (!found.interval || !to.interval) return "times: an engine has no interval";
  const double more = kUnevenMs / kUnevenTokens / kUnevenEvery;
  const Interval wanted{to.interval->low + more, to.interval->high + more};
  if (found.interval->high < wanted.low || found.interval->low > wanted.high) {
    return fmt::format("times: the interval {} does not overlap the wanted one, {}",
                       ends_of(*found.interval), ends_of(wanted));
  }
  const int least = found.samples / kUnevenEvery;
  if (found.outliers < least)
    return fmt::format("outliers: found {}, wanted at least {}", found.outliers, least);
  return found.drift ? "" : "its lag-1 correlation and trend are not reported";
}

std::string same_surprise(const TimingOutcome& found) {
  if (found.against_sound == "SAME" || found.against_sound == "INCONCLUSIVE") return "";
  return fmt::format("against the sound engine: found {}, wanted SAME or INCONCLUSIVE",
                     found.against_sound.empty() ? "no comparison" : found.against_sound);
}

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

std::vector<TimingFault> make_faults() {
  using V = Verdict;
  using Ends = std::vector<TimingEnd>;
  const Ends kPasses = {{V::kPass, ""}};
  // The ids were written during a later call that asked for fewer.
  constexpr TimingEnd kLateWrite = {V::kIntegrity, "them was written"};
  // The engine's own threads can keep it from answering in time.
  const Ends kPassesLate = {{V::kPass, ""}, {V::kIntegrity, "clocks disagree"}};
  const Ends kState = {{V::kIntegrity, "state receipt"}};
  // For many late ids `tiny` emits the same text, and an engine with a small fault may emit it too;
  // then only K and V show the fault.
  const Ends kTokenOrState = {{V::kFailToken, "late id"}, {V::kIntegrity, "state receipt"}};
  const Ends kLeavesWork = {{V::kIntegrity, "left work on its device"}};
  std::vector<TimingFault> table;
  const auto add = [&](std::string_view id, std::string_view what, std::string_view library,
                       const Ends& ends, TimingRun run = TimingRun::kDecode) -> TimingFault& {
    return table.emplace_back(
        TimingFault{.id = id, .what = what, .run = run, .engines = {{library, ends}}});
  };
  const auto compare = [](TimingFault& fault, TimingBand cpu, TimingBand cuda) {
    fault.cpu_times = cpu, fault.cuda_times = cuda;
  };
  add("T1", "remembers ids by prompt and gives them back", "remembers_prompts", kTokenOrState);
  // An engine that answers from memory takes less than 1 % of the honest time, while honest times
  // of one case differ by a third on a CPU that other programs use.
  compare(
      add("T1", "remembers ids by prompt and last id: finds nothing", "remembers_inputs", kPasses),
      {TimesCompared::kToSound, 0.6, 1.7}, {TimesCompared::kToSound, 0.9, 1.1});
  add("T2", "decodes ahead inside prefill()", "decodes_ahead", kTokenOrState);
  compare(add("T3", "prefill() keeps its ids, the first decode does the work", "defers_prefill",
              kPasses, TimingRun::kPrefill),
          {TimesCompared::kDeferred, 0.95, 1.05}, {TimesCompared::kDeferred, 0.95, 1.05});
  add("T4", "leaves K and V with 3 bits of mantissa", "few_bits", kState);
  add("T4", "leaves out a norm's weight", "no_norm", kTokenOrState);
  add("T4", "leaves out half of the heads", "half_the_heads", kTokenOrState).cuda = false;
  add("T5", "returns before its ids are written, the last one excepted", "last_id_first",
      {{V::kIntegrity, "a receipt is -1"}, kLateWrite});
  add("T5", "returns before its ids are written", "ids_later",
      {{V::kFailToken, "receipts: found 0, wanted 31"}, kLateWrite});
  add("T6", "stops early and repeats the last id", "pads", kTokenOrState);
  TimingFault& spins =
      add("T7", "spins while others are timed", "spins", kPassesLate, TimingRun::kLong);
  spins.alone = true;
  compare(spins, {TimesCompared::kSoundAlone, 0, 1.6}, {TimesCompared::kSoundAlone, 0, 1.1});
  // The rows that it leaves out never win, and no state depends on them.
  add("T8", "does not read 5 % of the LM head", "part_of_the_head", kPasses).audit = {
      {V::kIntegrity, "tiles are not read"}};
  compare(add("T9", "takes longer on every 7th block", "uneven", kPasses, TimingRun::kUneven),
          {TimesCompared::kUneven}, {TimesCompared::kUneven});
  compare(add("T10", "is a copy of the sound engine", "sound_copy", kPasses, TimingRun::kCopies),
          {TimesCompared::kSame}, {TimesCompared::kSame});
  add("T11", "crashes in turn with a sound neighbour", "crashes",
      {{V::kRuntimeError, "signal 11"}});
  add("T12", "is right, and slow in prefill", "slow_prefill", kPasses);
  add("T13", "is wrong from position 25 on, then hangs", "wrong_then_hangs",
      {{V::kFailToken, "no progress for"}}, TimingRun::kShortTimeout);
  TimingFault& leaves = add("T14", "leaves work on the card after its call", "../left_thread",
                            kLeavesWork, TimingRun::kLong);
  leaves.engines.push_back({"../left_context", kLeavesWork});
  leaves.cpu = false, leaves.alone = true;
  leaves.cuda_times = {TimesCompared::kSoundAlone, 0, 1.1};
  compare(add("T15", "does less where nobody looks", "catches_up", kPasses, TimingRun::kObserved),
          {TimesCompared::kUnseen}, {TimesCompared::kUnseen});
  compare(add("T15", "hands logits over slowly", "slow_logits", kPasses, TimingRun::kObserved),
          {TimesCompared::kSeen}, {TimesCompared::kSeen});
  return table;
}

}  // namespace

const std::vector<TimingRunInfo>& timing_runs() {
  static const std::vector<TimingRunInfo> table = {
      // tests/plugins/timing_faults.h recognises a timed call by these 31 tokens.
      {TimingRun::kDecode, {"--n-gen", "31", "--blocks", "8"}},
      // On a card, kernels of a few rows take less time than their launches do, and launches differ
      // by several percent between processes. Attention over 2,048 rows takes longer than both.
      {TimingRun::kPrefill, {"--blocks", "12"}, {"--n-prompt", "256"}, {"--n-prompt", "2048"}},
      // A block of 31 tokens (5 ms on a CPU) can end before a spinning thread is scheduled again.
      {TimingRun::kLong, {"--n-gen", "256", "--blocks", "8"}},
      {TimingRun::kShortTimeout, {"--n-gen", "31", "--blocks", "8", "--timeout", "5"}},
      {TimingRun::kUneven, {"--n-gen", "31", "--blocks", "28"}},
      {TimingRun::kCopies, {"--n-gen", "31", "--blocks", "20"}, {}, {}, 5},
      // From 64 rows on, where T15 saves; handing over is measured after a single id.
      {TimingRun::kObserved, {"--n-gen", "31", "--n-depth", "64", "--blocks", "10"}, {}, {}, 5},
  };
  return table;
}

const std::vector<TimingFault>& timing_faults() {
  static const std::vector<TimingFault> table = make_faults();
  return table;
}

TimingOutcome timing_outcome(const EngineReport& engine) {
  TimingOutcome outcome{engine.verdict, engine.reasons, static_cast<int>(engine.samples.size())};
  outcome.caution = engine.observed.caution;
  if (engine.ms_per_tok) {
    outcome.fastest_ms = engine.ms_per_tok->min;
    outcome.interval = engine.ms_per_tok->ci;
    outcome.outliers = engine.ms_per_tok->outliers;
    outcome.drift = engine.ms_per_tok->lag1 && engine.ms_per_tok->slope;
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
  if (times_allowed(found.verdict) && found.fastest_ms <= 0) return "times: none, but it passed";
  if (!times_allowed(found.verdict) && found.fastest_ms > 0) return "times: shown, wanted none";
  return "";
}

std::string control_surprise(const TimingOutcome& sound, int blocks) {
  std::string text = surprise({kSoundLibrary, {{Verdict::kPass, ""}}}, sound);
  if (text.empty() && sound.samples != blocks)
    text = fmt::format("samples: found {}, wanted {}", sound.samples, blocks);
  return text;
}

std::string times_surprise(const TimingBand& band, const TimingOutcome& found,
                           const TimingOutcome& to) {
  if (band.compared == TimesCompared::kNone) return "";
  if (band.compared == TimesCompared::kDeferred) return deferred_surprise(band, found, to);
  if (band.compared == TimesCompared::kUneven) return uneven_surprise(found, to);
  if (band.compared == TimesCompared::kSame) return same_surprise(found);
  if (band.compared == TimesCompared::kUnseen || band.compared == TimesCompared::kSeen)
    return caution_surprise(band.compared == TimesCompared::kUnseen, found.caution);
  const double ratio = to.fastest_ms > 0 ? found.fastest_ms / to.fastest_ms : 0;
  if (ratio >= band.low && ratio <= band.high)
    return band.compared == TimesCompared::kSoundAlone ? beside_surprise(found, to) : "";
  return fmt::format("times: {:.4g} ms a token are {:.2f} of {:.4g} ms, wanted {} to {}",
                     found.fastest_ms, ratio, to.fastest_ms, band.low, band.high);
}

}  // namespace mkbench
