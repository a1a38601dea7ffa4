// Statistics of blocks that were taken in several processes (Kalibera and Jones: the upper of two
// levels gives the interval). An engine's place in memory is drawn once a process: two copies of
// one library differed by 0.6-0.7 %, and their intervals over blocks did not overlap, 4 times of 4
// (H200). So the unit of replication is the process or, if there is only one, the block.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "harness/measure/statistics.h"

namespace mkbench {

// The values of each process, in the order in which its blocks were taken.
using ByProcess = std::vector<std::vector<double>>;

// How values move from block to block inside the processes.
struct Drift {
  // Correlation of neighbouring blocks, corrected for its bias in short series; absent if no
  // process has kMinBlocksForDrift blocks, or if all values are equal.
  std::optional<double> lag1;
  // Change per block, as a share of the mean, common to all processes; two-sided probability of a
  // slope this steep among independent values. Absent together with lag1.
  std::optional<double> slope, slope_p;
};
inline constexpr int kMinBlocksForDrift = 4;
Drift drift_of(const ByProcess& processes);

// Above this lag-1 correlation the blocks of a single process are not independent values.
inline constexpr double kMostLag1 = 0.2;

// Factor on the variance of the mean of one process's blocks: (1 + r) / (1 - r) for a lag-1
// correlation r above kMostLag1, else 1.
double variance_inflation(const Drift& drift);

// Mean of the processes' means. Its interval is the t interval of those means; with one process,
// the t interval of its blocks with variance_inflation(), which lowers the degrees of freedom too.
// Empty processes are left out. The interval is absent as in summarize().
Summary summarize_processes(const ByProcess& processes, double confidence);

// ms/token of two engines in the blocks of one process that hold both.
struct PairedBlocks {
  std::vector<double> baseline_ms, candidate_ms;
};

// Speed-up of `candidate` over `baseline`: exp of the mean of the processes' mean ln(baseline /
// candidate).
struct PairedSpeedup {
  double speedup = 0;
  // exp of the log ratios' t interval over processes or, inflated, over >= 8 blocks of one process.
  std::optional<Interval> ci;
  std::optional<Interval> bca_ci;  // BCa bootstrap of the same values, a cross-check; needs a seed
  int blocks = 0, processes = 0;
};
// seed: of the bootstrap. Throws Error(kRuntime) if the engines have different numbers of blocks in
// a process, and for a time that is not positive.
PairedSpeedup paired_speedup(const std::vector<PairedBlocks>& processes, double confidence,
                             std::optional<uint64_t> seed);

// Times of one engine in two runs, HEAD over BASE. The runs share no blocks, so nothing is paired.
struct TimeRatio {
  double ratio = 0;  // exp of the difference of the means of ln(process mean)
  // Welch's t interval of that difference: the runs may scatter differently, and may have different
  // numbers of processes. Absent below 2 processes on a side.
  std::optional<Interval> ci;
  int base_processes = 0, head_processes = 0;
  double scatter = 0;  // standard error of ln(ratio) if each side had one process; 0 without `ci`
};
// ms/token by process. A side without processes gives the ratio 0. Throws Error(kRuntime) for a
// process whose mean is not positive.
TimeRatio unpaired_ratio(const ByProcess& base, const ByProcess& head, double confidence);

// Processes of each side with which nine gates of ten would find a HEAD that takes 1 + 2 x `allowed` of
// BASE's time: the whole interval of `ratio` at `confidence` lies above 1 + allowed. 0: unknown, or
// more than a thousand.
int processes_to_tell(const TimeRatio& ratio, double allowed, double confidence);

// The smallest difference of two engines' times that a verdict may name on a machine.
struct SpeedMargin {
  // How far a comparison of an engine with itself lies from 1 on this machine; 0: not calibrated.
  double half_width = 0;
  std::string source = "no calibration of this machine";
  // Comparisons with fewer processes get no verdict, because of too_few; 0: no such limit.
  int least_processes = 0;
  std::string too_few{};

  // max(0.5 %, 1.5 x half_width); 1 % if nothing was calibrated.
  double value() const;
};

// An interval that reaches further from 1 is not "SAME", even with the margin of a noisy machine.
inline constexpr double kMostSame = 0.02;

// "FASTER" or "SLOWER" if the whole interval lies beyond the margin, "SAME" if all of it lies
// within the margin and kMostSame, else "INCONCLUSIVE". The margin is the same whichever engine is
// the baseline: [1 / (1 + margin), 1 + margin].
std::string speed_verdict(const Interval& speedup, double margin);

}  // namespace mkbench
