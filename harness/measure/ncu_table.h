// The table that Nsight Compute prints: `ncu --csv --page raw --print-units base`.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace mkbench {

// After ncu's own lines: a header with the metrics' names, a row of units, one row per kernel.
struct NcuTable {
  std::vector<std::string> header, units;
  std::vector<std::vector<std::string>> rows;  // each as long as the header
  std::string problem{};                       // why there is no table, with ncu's own error if any

  // The column of a metric; -1 if the table has none.
  int column(std::string_view name) const;
};

NcuTable read_ncu_table(const std::string& text);

// The first ==ERROR== of ncu, else its first ==WARNING==, without that mark; else empty.
std::string ncu_error(const std::string& text);

// A number as ncu writes it, with commas between thousands; NaN if negative or not a number.
double ncu_number(std::string text);

}  // namespace mkbench
