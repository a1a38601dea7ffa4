#include "harness/measure/ncu_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <sstream>

namespace mkbench {
namespace {

// The cells of a line whose cells are all in double quotes; a quote inside a cell is doubled.
std::vector<std::string> cells_of(const std::string& line) {
  std::vector<std::string> cells;
  size_t at = 0;
  while (at < line.size() && line[at] == '"') {
    std::string cell;
    for (++at;; ++at) {
      const size_t end = line.find('"', at);
      if (end == std::string::npos) return {};
      cell += line.substr(at, end - at);
      at = end + 1;
      if (at >= line.size() || line[at] != '"') break;
      cell += '"';
    }
    cells.push_back(std::move(cell));
    if (at < line.size() && line[at] == ',') ++at;
  }
  return cells;
}

}  // namespace

int NcuTable::column(std::string_view name) const {
  const auto found = std::find(header.begin(), header.end(), name);
  return found == header.end() ? -1 : static_cast<int>(found - header.begin());
}

std::string ncu_error(const std::string& text) {
  for (const std::string_view mark : {"==ERROR== ", "==WARNING== "}) {
    const size_t at = text.find(mark);
    if (at == std::string::npos) continue;
    const size_t begin = at + mark.size();
    return text.substr(begin, text.find('\n', begin) - begin);
  }
  return "";
}

double ncu_number(std::string text) {
  std::erase(text, ',');
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  return text.empty() || *end != '\0' || !std::isfinite(value) || value < 0 ? std::nan("") : value;
}

NcuTable read_ncu_table(const std::string& text) {
  NcuTable table;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    while (!line.empty() && line.back() == '\r') line.pop_back();
    std::vector<std::string> cells = cells_of(line);
    if (cells.empty()) continue;
    if (table.header.empty()) {
      if (cells.front() == "ID") table.header = std::move(cells);
      continue;
    }
    if (cells.size() != table.header.size()) {
      table.problem = fmt::format("ncu: a row of its table has {} cells, wanted {}", cells.size(),
                                  table.header.size());
      return table;
    }
    if (table.units.empty()) {
      table.units = std::move(cells);
    } else {
      table.rows.push_back(std::move(cells));
    }
  }
  if (!table.rows.empty()) return table;
  const std::string error = ncu_error(text);
  table.problem = !error.empty() ? "ncu: " + error
                                 : "ncu: its log has no table of kernels, wanted a header that "
                                   "begins with \"ID\"";
  return table;
}

}  // namespace mkbench
