#include "harness/measure/byte_counts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <sstream>
#include <vector>

namespace mkbench {
namespace {

constexpr double kLeastShare = 0.97, kMostShare = 1.05;
constexpr double kSectorBytes = 32;

// The cells of a line in which every cell stands in double quotes.
std::vector<std::string> cells_of(const std::string& line) {
  std::vector<std::string> cells;
  size_t at = 0;
  while (at < line.size() && line[at] == '"') {
    const size_t end = line.find('"', at + 1);
    if (end == std::string::npos) return {};
    cells.push_back(line.substr(at + 1, end - at - 1));
    at = end + 1;
    if (at < line.size() && line[at] == ',') ++at;
  }
  return cells;
}

int column_of(const std::vector<std::string>& header, std::string_view name) {
  const auto found = std::find(header.begin(), header.end(), name);
  return found == header.end() ? -1 : static_cast<int>(found - header.begin());
}

// A number as ncu writes it, with commas between thousands; NaN for anything else.
double number_of(std::string text) {
  std::erase(text, ',');
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  return text.empty() || *end != '\0' || !std::isfinite(value) || value < 0 ? std::nan("") : value;
}

// The first line of ncu's own that tells an error, without its mark; empty without one.
std::string error_line(const std::string& log) {
  for (const std::string_view mark : {"==ERROR== ", "==WARNING== "}) {
    const size_t at = log.find(mark);
    if (at == std::string::npos) continue;
    const size_t begin = at + mark.size();
    return log.substr(begin, log.find('\n', begin) - begin);
  }
  return "";
}

ByteCounts without(const std::string& problem) {
  ByteCounts counts;
  counts.problem = problem;
  return counts;
}

}  // namespace

ByteCounts parse_ncu_log(const std::string& log) {
  ByteCounts counts;
  std::istringstream lines(log);
  std::vector<std::string> header;
  int dram = -1, hits = -1;
  bool units_read = false;
  for (std::string line; std::getline(lines, line);) {
    while (!line.empty() && line.back() == '\r') line.pop_back();
    const std::vector<std::string> cells = cells_of(line);
    if (cells.empty()) continue;
    if (header.empty()) {
      if (cells.front() != "ID") continue;
      header = cells;
      dram = column_of(header, kDramMetric);
      hits = column_of(header, kL2HitMetric);
      if (dram < 0) return without(fmt::format("ncu: its table has no column {}", kDramMetric));
      continue;
    }
    if (cells.size() != header.size()) {
      return without(fmt::format("ncu: a row of its table has {} cells, wanted {}", cells.size(),
                                 header.size()));
    }
    const auto cell = [&](int column) { return cells[static_cast<size_t>(column)]; };
    if (!units_read) {
      units_read = true;
      if (cell(dram) != "byte") {
        return without(fmt::format("ncu: {} is in '{}', wanted 'byte'", kDramMetric, cell(dram)));
      }
      continue;
    }
    const double read = number_of(cell(dram)), hit = hits < 0 ? 0 : number_of(cell(hits));
    if (std::isnan(read) || std::isnan(hit)) {
      return without(fmt::format("ncu: {} is '{}', wanted a number",
                                 std::isnan(read) ? kDramMetric : kL2HitMetric,
                                 cell(std::isnan(read) ? dram : hits)));
    }
    counts.dram_bytes += read;
    counts.l2_hit_bytes += kSectorBytes * hit;
    ++counts.kernels;
  }
  if (counts.kernels > 0) return counts;
  const std::string error = error_line(log);
  return without(!error.empty() ? "ncu: " + error
                                : "ncu: its log has no table of kernels, wanted a header that "
                                  "begins with \"ID\"");
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
    judged.text = fmt::format("{}: whether all were read is open", figures);
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
