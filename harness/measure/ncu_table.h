// The table that Nsight Compute prints: `ncu --csv --page raw --print-units base`.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace mkbench {

// A header that names the metrics, a row of units and a row a kernel, after lines of ncu's own.
struct NcuTable {
  std::vector<std::string> header, units;
  std::vector<std::vector<std::string>> rows;  // each as long as the header
  std::string problem{};  // why there is no table; ncu's own error stands in it

  // The column of a metric; -1 where the table has none.
  int column(std::string_view name) const;
};

NcuTable read_ncu_table(const std::string& text);

// The first error that ncu prints among its own lines, without its mark; empty without one.
std::string ncu_error(const std::string& text);

// A number as ncu writes it, with commas between thousands; NaN for anything else, and below 0.
double ncu_number(std::string text);

}  // namespace mkbench
