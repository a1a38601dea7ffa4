#include "harness/judge/states.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

namespace mkbench {
namespace {

bool all_finite(const std::vector<float>& values) {
  return std::all_of(values.begin(), values.end(), [](float v) { return std::isfinite(v); });
}

std::set<int> rows_to_scan(int rows, int boundary, bool every_row) {
  std::set<int> chosen;
  if (every_row) {
    for (int row = 0; row < rows; ++row) chosen.insert(chosen.end(), row);
    return chosen;
  }
  for (const int row : {0, boundary - 1, boundary, rows - 1}) {
    if (row >= 0 && row < rows) chosen.insert(row);
  }
  return chosen;
}

}  // namespace

StateScan scan_states(Engine& engine, int layers, int boundary, bool every_row) {
  StateScan scan;
  const auto look = [&scan](const std::optional<std::vector<float>>& state, auto describe) {
    if (!state) return false;
    ++scan.states;
    if (scan.first.empty() && !all_finite(*state)) scan.first = describe();
    return true;
  };
  const std::set<int> rows = rows_to_scan(engine.position(), boundary, every_row);
  for (int layer = 0; layer < layers; ++layer) {
    for (const int row : rows) {
      const bool shown = look(engine.kv_row(layer, row), [&] {
        return fmt::format("KV row of layer {}, position {}", layer, row);
      });
      if (!shown) break;
    }
    look(engine.hidden(layer), [&] { return fmt::format("hidden state of layer {}", layer); });
  }
  return scan;
}

}  // namespace mkbench
