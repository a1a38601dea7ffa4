// The faults of timing T1-T15: which libraries of tests/plugins have them, and how each must end.
// `mkbench selftest --timing` runs this table.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "harness/report/report.h"

namespace mkbench {

// Kinds of `mkbench run` by their options (besides engines and device). Rows of one kind share a
// case, unless a row stands alone.
enum class TimingRun { kDecode, kPrefill, kLong, kShortTimeout, kUneven, kCopies, kObserved };

struct TimingRunInfo {
  TimingRun run;
  std::vector<std::string> options;
  std::vector<std::string> cpu{}, cuda{};  // more options, by device
  int processes = 1;                       // each has its share of the blocks
};
const std::vector<TimingRunInfo>& timing_runs();
inline const TimingRunInfo& timing_run(TimingRun run) {
  return timing_runs()[static_cast<size_t>(run)];
}

// Which times a row compares. kToSound and kSoundAlone compare fastest blocks, because other
// programs only add to a time; the ratio must lie in the row's band.
enum class TimesCompared {
  kNone,
  kToSound,  // ratio of the library's times to the sound engine's in the same case
  // The sound engine's times beside the library, over its times alone. The interval beside may lie
  // above the interval alone by at most an uncalibrated machine's margin.
  kSoundAlone,
  // The library delays every 7th block. The report must count these outliers and hold values for
  // lag-1 and trend, and its interval must reach the sound engine's, shifted by the mean delay.
  kUneven,
  // The verdict of the comparison with the sound engine: neither FASTER nor SLOWER.
  kSame,
  // Ratio, block by block, of the library's time to first token to the sound engine's: the interval
  // of its median must reach the band. The library's prefill() must have postponed its work.
  kDeferred,
  // The caution "quicker where nobody looks" must name the library, or must not.
  kUnseen,
  kSeen,
};

// A verdict, and a text that one of its reasons must hold; empty: there must be no reason.
struct TimingEnd {
  Verdict verdict;
  std::string_view reason;
};

// A library, and how mkbench may judge it.
struct TimingEngine {
  std::string_view library;
  std::vector<TimingEnd> ends;
};

struct TimingBand {
  TimesCompared compared = TimesCompared::kNone;
  double low = 0, high = 0;
};

struct TimingFault {
  std::string_view id, what;
  TimingRun run = TimingRun::kDecode;
  std::vector<TimingEngine> engines;
  bool cpu = true, cuda = true;  // the devices on which it runs
  bool alone = false;            // in a case without other rows
  TimingBand cpu_times{}, cuda_times{};
  // How `mkbench audit` must end for each library (the sound engine must pass); empty: the audit is
  // not run.
  std::vector<TimingEnd> audit{};
};
const std::vector<TimingFault>& timing_faults();

// The engine of every case that has no fault: the control.
inline constexpr std::string_view kSoundLibrary = "sound";

// Results of one engine of a case.
struct TimingOutcome {
  Verdict verdict = Verdict::kSkipped;
  std::vector<std::string> reasons;
  int samples = 0;
  double fastest_ms = 0;               // per token, in the fastest block; 0: no time is shown
  std::optional<Interval> interval{};  // interval of the mean, ms a token
  int outliers = 0;
  bool drift = false;                // lag-1 and trend are reported
  std::map<int, double> block_ms{};  // per token, by block
  // The median share of prefill() in a block's time; 0: no block timed its prefill().
  double prefill_share = 0;
  std::string caution{};        // ObservedReport::caution
  std::string against_sound{};  // verdict of the comparison with the sound engine; empty: none
};
TimingOutcome timing_outcome(const EngineReport& engine);

// "FAIL_TOKEN or INTEGRITY"
std::string names_of(const std::vector<TimingEnd>& ends);

// How a verdict and its reasons differ from each of `ends`; empty if they match one of them.
std::string end_surprise(const std::vector<TimingEnd>& ends, Verdict verdict,
                         const std::vector<std::string>& reasons);
// How an engine's outcome differs from its row of the table; empty if it does not.
std::string surprise(const TimingEngine& wanted, const TimingOutcome& found);
// Which of PASS, a time and `blocks` samples the sound engine of a case lacks; empty if it has all
// three. Whether its time has an interval depends on what else the machine does.
std::string control_surprise(const TimingOutcome& sound, int blocks);
// How the times of `found`, compared with those of `to`, leave the band, or why the comparison
// fails; empty if they lie inside.
std::string times_surprise(const TimingBand& band, const TimingOutcome& found,
                           const TimingOutcome& to);

}  // namespace mkbench
