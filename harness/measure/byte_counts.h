// The bytes that a profiler saw a decode read from memory, and what follows from them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "harness/measure/statistics.h"

namespace mkbench {

// Metrics of Nsight Compute, summed over the kernels of one decode. A sector has 32 bytes.
inline constexpr std::string_view kDramMetric = "dram__bytes_read.sum";
inline constexpr std::string_view kL2HitMetric = "lts__t_sectors_op_read_lookup_hit.sum";

struct ByteCounts {
  double dram_bytes = 0;    // read from DRAM
  double l2_hit_bytes = 0;  // reads that hit in L2, including exchange and activations
  int kernels = 0;
  std::string problem{};  // why there are no counts; else empty
};

// Reads the log of `ncu --csv --page raw --print-units base`: after ncu's own lines, a header with
// the metrics' names, a row of units and one row per kernel. If the log has no table, `problem` is
// ncu's own error, else what was wanted.
ByteCounts parse_ncu_log(const std::string& log);

// Whether all bytes that a decode must read were read; kNothing: the counts do not tell.
enum class CountsSay { kAllRead, kNotAllRead, kNothing };

struct CountsJudged {
  CountsSay say = CountsSay::kNothing;
  Interval share{};  // of the bytes wanted; low: DRAM alone, high: with what L2 may have kept
  std::string text;  // one line: figures, limits and the reason
};

// All bytes wanted count as read if DRAM alone gave 0.97 to 1.05 of them. They count as not all
// read if DRAM and what L2 can keep from one token to the next (at most its size, and at most its
// hits) stay below 0.97. Nothing follows from counts between the two, nor from more than 1.05,
// where other reads may hide missing ones.
CountsJudged judge_counts(const ByteCounts& counts, double bytes_wanted, int tokens,
                          int64_t l2_bytes);

}  // namespace mkbench
