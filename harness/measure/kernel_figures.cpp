#include "harness/measure/kernel_figures.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "harness/measure/byte_counts.h"
#include "harness/measure/ncu_table.h"

namespace mkbench {
namespace {

KernelFigures no_figures(const std::string& problem) {
  KernelFigures figures;
  figures.problem = problem;
  return figures;
}

class Launch {
 public:
  explicit Launch(const NcuTable& table) : table_(table) {}

  std::string text(std::string_view column) const {
    const int at = table_.column(column);
    return at < 0 ? "" : table_.rows.front()[static_cast<size_t>(at)];
  }
  // Reads a metric into `value`. Returns why it is no number in one of `units`, or an empty text.
  std::string read(std::string_view metric, const std::vector<std::string>& units,
                   double& value) const {
    const int at = table_.column(metric);
    if (at < 0) return fmt::format("ncu: its table has no column {}", metric);
    const std::string& unit = table_.units[static_cast<size_t>(at)];
    if (std::find(units.begin(), units.end(), unit) == units.end())
      return fmt::format("ncu: {} is in '{}', wanted '{}'", metric, unit, units.front());
    value = ncu_number(text(metric));
    if (std::isnan(value))
      return fmt::format("ncu: {} is '{}', wanted a number", metric, text(metric));
    return "";
  }

  std::vector<Stall> stalls() const {
    std::vector<Stall> all;
    double sum = 0;
    for (size_t i = 0; i < table_.header.size(); ++i) {
      std::string_view name = table_.header[i];
      if (!name.starts_with(kStallPrefix) || !name.ends_with(kStallSuffix)) continue;
      name.remove_prefix(kStallPrefix.size());
      name.remove_suffix(kStallSuffix.size());
      const double cycles = ncu_number(table_.rows.front()[i]);
      // A second series, "..._not_issued", counts a part of the first one's cycles again.
      if (std::isnan(cycles) || name.ends_with("_not_issued")) continue;
      sum += cycles;
      // A warp counted as "selected" issues, which is no stall.
      if (name != "selected") all.push_back({std::string(name), cycles});
    }
    for (Stall& stall : all) stall.share = sum > 0 ? stall.share / sum : 0;
    std::stable_sort(all.begin(), all.end(),
                     [](const Stall& a, const Stall& b) { return a.share > b.share; });
    return all;
  }

 private:
  const NcuTable& table_;
};

std::string bytes_line(const KernelFigures& figures, const KernelBounds& bounds) {
  if (bounds.tokens <= 0) {
    return fmt::format(
        "DRAM bytes: {:.4g} GB in this launch, which is one of several of the decode",
        figures.dram_bytes / 1e9);
  }
  const double a_token = figures.dram_bytes / bounds.tokens;
  return fmt::format(
      "DRAM bytes: {:.4g} GB a token, {:.3f} of the {:.4g} GB of weights and KV rows that it must "
      "read",
      a_token / 1e9, a_token / bounds.bytes_token, bounds.bytes_token / 1e9);
}

std::string throughput_line(const KernelFigures& figures, const KernelBounds& bounds) {
  std::string text = fmt::format("DRAM throughput: {:.0f} GB/s over the launch", figures.gb_per_s);
  if (bounds.pin_gb_per_s > 0) {
    text += fmt::format(", {:.1f} % of the pins' {:.0f}",
                        100 * figures.gb_per_s / bounds.pin_gb_per_s, bounds.pin_gb_per_s);
  }
  if (figures.peak_percent >= 0)
    text += fmt::format("; ncu: {:.1f} % of its peak", figures.peak_percent);
  return text;
}

std::string stall_line(const KernelFigures& figures) {
  if (figures.stalls.empty()) return "top stall: ncu gave none";
  std::string text = fmt::format("top stall: {}, {:.0f} % of the warps' cycles",
                                 figures.stalls[0].reason, 100 * figures.stalls[0].share);
  if (figures.stalls.size() > 1)
    text +=
        fmt::format("; then {}, {:.0f} %", figures.stalls[1].reason, 100 * figures.stalls[1].share);
  return text;
}

}  // namespace

KernelFigures parse_kernel_figures(const std::string& table_text) {
  const NcuTable table = read_ncu_table(table_text);
  if (!table.problem.empty()) return no_figures(table.problem);
  if (table.rows.size() != 1)
    return no_figures(fmt::format("ncu: its table has {} launches, wanted 1", table.rows.size()));
  const Launch launch(table);
  KernelFigures figures;
  figures.kernel = launch.text("Kernel Name");
  double ns = 0;
  figures.problem = launch.read(kDramMetric, {"byte"}, figures.dram_bytes);
  // Newer versions call a nanosecond "ns".
  if (figures.problem.empty())
    figures.problem = launch.read(kDurationMetric, {"ns", "nsecond"}, ns);
  if (figures.problem.empty() && ns <= 0)
    figures.problem = fmt::format("ncu: {} is 0, wanted more", kDurationMetric);
  if (!figures.problem.empty()) return figures;
  figures.gb_per_s = figures.dram_bytes / ns;
  if (!launch.read(kDramShareMetric, {"%"}, figures.peak_percent).empty())
    figures.peak_percent = -1;
  figures.stalls = launch.stalls();
  return figures;
}

std::vector<std::string> figure_lines(const KernelFigures& figures, const KernelBounds& bounds) {
  return {bytes_line(figures, bounds), throughput_line(figures, bounds), stall_line(figures)};
}

}  // namespace mkbench
