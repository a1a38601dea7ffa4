// Statistics of blocks that were taken in several processes (Kalibera and Jones: the upper of two
// levels gives the interval). Where an engine lies in memory is drawn once a process: two copies of
// one library differed by 0.6-0.7 % with intervals over blocks that did not touch, 4 times of 4
// (H200). So the unit of replication is the process where there are several, else the block.
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
  // Correlation of neighbouring blocks, its bias in short series removed; absent where no process has kMinBlocksForDrift blocks, or
  // where all values are equal.
  std::optional<double> lag1;
  // Change a block, as a share of the mean, common to all processes; and the two-sided probability
  // of a slope so steep among independent values. Absent together with lag1.
  std::optional<double> slope, slope_p;
};
inline constexpr int kMinBlocksForDrift = 4;
Drift drift_of(const ByProcess& processes);

// Above this lag-1 correlation the blocks of a single process are no independent values.
inline constexpr double kMostLag1 = 0.2;

// What the variance of the mean of one process's blocks is multiplied by: (1 + r) / (1 - r) for a
// lag-1 correlation r above kMostLag1, else 1.
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
  // t on the log ratios: of processes, or, with one process, of its blocks (at least 8), inflated.
  std::optional<Interval> ci;
  std::optional<Interval>
      bca_ci;  // BCa bootstrap of the same values, a cross-check; without a seed none
  int blocks = 0, processes = 0;
};
// seed: of the bootstrap. Throws Error(kRuntime) where the two engines have different numbers of blocks
// in a process, and for a time that is not positive.
PairedSpeedup paired_speedup(const std::vector<PairedBlocks>& processes, double confidence,
                             std::optional<uint64_t> seed);

// Times of one engine in two runs, HEAD over BASE. The runs share no blocks, so nothing is paired.
struct TimeRatio {
  double ratio = 0;  // exp of the difference of the means of ln(process mean)
  // Welch's t interval of that difference: the runs may scatter differently, and may have different
  // numbers of processes. Absent below 2 processes on a side.
  std::optional<Interval> ci;
  int base_processes = 0, head_processes = 0;
};
// ms/token by process. A side without processes gives the ratio 0. Throws Error(kRuntime) for a
// process whose mean is not positive.
TimeRatio unpaired_ratio(const ByProcess& base, const ByProcess& head, double confidence);

// The smallest difference of two engines' times that a verdict may name on a machine.
struct SpeedMargin {
  // How far a comparison of an engine with itself lies from 1 on this machine; 0: not calibrated.
  double half_width = 0;
  std::string source = "no calibration of this machine";
  // Comparisons with fewer processes of an engine get no verdict, and why not; 0: no such limit.
  int least_processes = 0;
  std::string too_few{};

  // max(0.5 %, 1.5 x half_width); 1 % where nothing was calibrated.
  double value() const;
};

// No interval that reaches further from 1 is "SAME", however large the margin of a noisy machine is.
inline constexpr double kMostSame = 0.02;

// "FASTER" or "SLOWER" where the whole interval lies beyond the margin, "SAME" where all of it lies
// within the margin and kMostSame, else "INCONCLUSIVE". The margin means the same whichever engine is
// the baseline: [1 / (1 + margin), 1 + margin].
std::string speed_verdict(const Interval& speedup, double margin);

}  // namespace mkbench
