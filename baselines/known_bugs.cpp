#include "baselines/known_bugs.h"

#include <ATen/ATen.h>

#include <cmath>
#include <sstream>

#include "baselines/bug_table.h"

namespace mkbench {

std::string number(double x) {
  std::ostringstream text;
  text << x;
  return text.str();
}

std::vector<double> others(std::vector<double> values, double own) {
  std::erase_if(values, [own](double v) { return std::abs(v - own) <= 1e-9 * std::abs(own); });
  return values;
}

at::Tensor PartOfSum::kept(const at::Tensor& x) const {
  const int64_t n = x.size(-1);
  return x * reads(at::arange(n, x.options().dtype(at::kLong)), n);
}

std::vector<PartOfSum> parts_of_sum(int64_t n) {
  using X = const at::Tensor&;
  std::vector<PartOfSum> parts = {
      {"the second half", [](X i, int64_t all) { return i < all / 2; }, true},
      {"the first half", [](X i, int64_t all) { return i >= all / 2; }, true},
      {"all but the first 32 elements", [](X i, int64_t) { return i < 32; }}};
  for (const int t : {1, 8, 16, 32, 64, 128, 256}) {
    if (t < n / 2)
      parts.push_back({"the last " + std::to_string(t) + " elements",
                       [t](X i, int64_t all) { return i < all - t; }, true});
  }
  for (int64_t p = 2; p < n && p <= 1024; p *= 2)
    parts.push_back({"the second half of each " + std::to_string(p) + " elements",
                     [p](X i, int64_t) { return i.remainder(p) < p / 2; }});
  for (const int p : {4, 8, 16, 32}) {
    if (p < n)
      parts.push_back({"the last of each " + std::to_string(p) + " elements",
                       [p](X i, int64_t) { return i.remainder(p) < p - 1; }});
  }
  return parts;
}

std::vector<int> BugTable::counts_of_rows(int least) const {
  std::vector<int> below;
  for (int n = least; n < rows; n *= 2) below.push_back(n);
  return below;
}

std::vector<KnownBug> BugTable::list() const {
  std::vector<KnownBug> bugs;
  const auto put = [&](const Row& row, int layer, const std::string& where) {
    KnownBug& bug = bugs.emplace_back();
    bug.deviation = {row.hooks, layer};
    bug.name = row.name, bug.text = where + row.text;
  };
  for (const Row& row : rows_) {
    if (row.kind == kFrequent || row.kind == kInLayersToo) put(row, -1, "");
  }
  for (int layer = 0; layer < config.shape.layers; ++layer) {
    for (const Row& row : rows_) {
      if (row.kind == kInLayersAlone || row.kind == kInLayersToo)
        put(row, layer, "layer " + std::to_string(layer) + ": ");
    }
  }
  for (const Row& row : rows_) {
    if (row.kind == kRare) put(row, -1, "");
  }
  return bugs;
}

std::vector<KnownBug> known_bugs(const ModelConfig& config, int rows) {
  BugTable table(config, rows);
  add_rope_bugs(table);
  add_norm_bugs(table);
  add_attention_bugs(table);
  add_weight_bugs(table);
  add_layer_bugs(table);
  add_end_bugs(table);
  return table.list();
}

}  // namespace mkbench
