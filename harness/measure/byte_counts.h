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
  std::string problem{};  // why there are no counts; empty: there are
};

// Reads the log of `ncu --csv --page raw --print-units base`: a header that names the metrics, a
// row of units and a row a kernel, after lines of ncu's own. A log without a table gives a problem
// that names what was found, or ncu's own error.
ByteCounts parse_ncu_log(const std::string& log);

// What counts say of the bytes that a decode of `tokens` tokens must read.
enum class CountsSay { kAllRead, kNotAllRead, kNothing };

struct CountsJudged {
  CountsSay say = CountsSay::kNothing;
  Interval share{};  // of the bytes wanted: low from DRAM alone, high with what L2 may have kept
  std::string text;  // one line: figures, limits and the reason
};

// All bytes wanted count as read if DRAM alone gave 0.97 to 1.05 of them, and as not all read if
// DRAM and what L2 can keep from one token to the next (at most its size, and at most its hits)
// stay below 0.97. Between the two, and above 1.05, where other reads may hide what is missing, the
// counts say nothing.
CountsJudged judge_counts(const ByteCounts& counts, double bytes_wanted, int tokens,
                          int64_t l2_bytes);

}  // namespace mkbench
