// What Nsight Compute has measured of one launch, and the three figures to look at first.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace mkbench {

// Metrics besides kDramMetric (byte_counts.h) that the figures come from. Each stall reason has a
// metric of its own, kStallPrefix + reason + kStallSuffix, in warp cycles for each instruction that
// a scheduler issues.
inline constexpr std::string_view kDurationMetric = "gpu__time_duration.sum";
inline constexpr std::string_view kDramShareMetric =
    "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed";
inline constexpr std::string_view kStallPrefix = "smsp__average_warps_issue_stalled_";
inline constexpr std::string_view kStallSuffix = "_per_issue_active.ratio";

struct Stall {
  std::string reason;  // "long_scoreboard"
  double share = 0;    // of all warps' cycles, including those in which they issue
};

struct KernelFigures {
  std::string kernel;
  double dram_bytes = 0;    // read
  double gb_per_s = 0;      // dram_bytes over the time of the launch, under the profiler
  double peak_percent = 0;  // ncu's own: DRAM's busiest unit against its peak; below 0: not given
  std::vector<Stall> stalls{};  // the longest first; empty if ncu gave none
  std::string problem{};        // why there are no figures; else empty
};

// The figures of a table (ncu_table.h) that has exactly one launch; else `problem` is set.
KernelFigures parse_kernel_figures(const std::string& table);

// What the launch should have read, and what the card could have given.
struct KernelBounds {
  int tokens = 0;           // of the launch; 0: the launch is only a part of a decode
  double bytes_token = 0;   // weights and KV rows that a token must read
  double pin_gb_per_s = 0;  // 0: not known
};

// Three lines: DRAM bytes a token, DRAM throughput, top stall.
std::vector<std::string> figure_lines(const KernelFigures& figures, const KernelBounds& bounds);

}  // namespace mkbench
