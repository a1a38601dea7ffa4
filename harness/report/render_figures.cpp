// How figures are printed: digits, intervals, shares of the ceiling and the ceiling itself.
#include <fmt/format.h>

#include <cmath>

#include "harness/report/render.h"
#include "references/base/one_line.h"

namespace mkbench {

std::string digits(double v) {
  if (!std::isfinite(v)) return "-";
  const double size = std::abs(v);
  const int decimals = size >= 1000 ? 0 : size >= 100 ? 1 : size >= 10 ? 2 : size >= 1 ? 3 : 4;
  return decimals == 0 ? with_commas(std::llround(v)) : fmt::format("{:.{}f}", v, decimals);
}

std::string interval_text(const std::optional<Interval>& ci) {
  return ci ? fmt::format(" [{}, {}]", digits(ci->low), digits(ci->high)) : std::string();
}

std::string percent_text(const Number& share) {
  return share.value ? fmt::format("{:.1f} %", 100 * *share.value) : "-";
}

std::string share_text(const EngineReport& e) {
  std::string text = percent_text(e.share);
  if (e.share_ci)
    text += fmt::format(" [{:.1f}, {:.1f}]", 100 * e.share_ci->low, 100 * e.share_ci->high);
  return e.share_note.empty() ? text : text + ", " + e.share_note;
}

std::string ceiling_note(const CaseReport& c) {
  const CeilingReport& ceiling = c.ceiling;
  if (!ceiling.ms_per_tok || !ceiling.gb_per_s.value) return {};
  std::string note =
      fmt::format("ceiling: {}{} ms/tok, {} GB/s", digits(ceiling.ms_per_tok->mean),
                  interval_text(ceiling.ms_per_tok->ci), digits(*ceiling.gb_per_s.value));
  if (c.memory.pin_gb_per_s > 0) {
    note += fmt::format(" ({:.1f} % of the pins' {})",
                        100 * *ceiling.gb_per_s.value / c.memory.pin_gb_per_s,
                        digits(c.memory.pin_gb_per_s));
  }
  return ceiling.settings.empty() ? note : note + ": " + one_line(ceiling.settings);
}

}  // namespace mkbench
