#include "harness/measure/byte_counts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "harness/measure/ncu_table.h"

namespace mkbench {
namespace {

constexpr double kLeastShare = 0.97, kMostShare = 1.05;
constexpr double kSectorBytes = 32;

ByteCounts without(const std::string& problem) {
  ByteCounts counts;
  counts.problem = problem;
  return counts;
}

}  // namespace

ByteCounts parse_ncu_log(const std::string& log) {
  const NcuTable table = read_ncu_table(log);
  const int dram = table.column(kDramMetric), hits = table.column(kL2HitMetric);
  if (!table.header.empty() && dram < 0)
    return without(fmt::format("ncu: its table has no column {}", kDramMetric));
  if (!table.units.empty() && table.units[static_cast<size_t>(dram)] != "byte") {
    return without(fmt::format("ncu: {} is in '{}', wanted 'byte'", kDramMetric,
                               table.units[static_cast<size_t>(dram)]));
  }
  if (!table.problem.empty()) return without(table.problem);
  ByteCounts counts;
  for (const std::vector<std::string>& row : table.rows) {
    const auto cell = [&](int column) { return row[static_cast<size_t>(column)]; };
    const double read = ncu_number(cell(dram)), hit = hits < 0 ? 0 : ncu_number(cell(hits));
    if (std::isnan(read) || std::isnan(hit)) {
      return without(fmt::format("ncu: {} is '{}', wanted a number",
                                 std::isnan(read) ? kDramMetric : kL2HitMetric,
                                 cell(std::isnan(read) ? dram : hits)));
    }
    counts.dram_bytes += read;
    counts.l2_hit_bytes += kSectorBytes * hit;
    ++counts.kernels;
  }
  return counts;
}

CountsJudged judge_counts(const ByteCounts& counts, double bytes_wanted, int tokens,
                          int64_t l2_bytes) {
  const double kept =
      std::min(counts.l2_hit_bytes, static_cast<double>(l2_bytes) * std::max(0, tokens - 1));
  CountsJudged judged;
  judged.share = {counts.dram_bytes / bytes_wanted, (counts.dram_bytes + kept) / bytes_wanted};
  const std::string figures = fmt::format(
      "DRAM gave {:.4g} GB to {} kernel{}: {:.3f} of the {:.4g} GB that {} token{} must read, "
      "{:.3f} with what L2 can keep",
      counts.dram_bytes / 1e9, counts.kernels, counts.kernels == 1 ? "" : "s", judged.share.low,
      bytes_wanted / 1e9, tokens, tokens == 1 ? "" : "s", judged.share.high);
  if (judged.share.high < kLeastShare) {
    judged.say = CountsSay::kNotAllRead;
    judged.text = fmt::format("{}; wanted at least {}", figures, kLeastShare);
  } else if (judged.share.low < kLeastShare) {
    judged.text =
        fmt::format("{}: all of it may have been read, but the counts do not prove it", figures);
  } else if (judged.share.low > kMostShare) {
    judged.text =
        fmt::format("{}: over {}, where other reads may hide what is missing", figures, kMostShare);
  } else {
    judged.say = CountsSay::kAllRead;
    judged.text = figures;
  }
  return judged;
}

}  // namespace mkbench
