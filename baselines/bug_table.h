// The table of known bugs while it is filled. For .cpp files of this folder only, as hooks.h.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "baselines/hooks.h"
#include "baselines/known_bugs.h"

namespace mkbench {

std::string number(double x);
std::vector<double> others(std::vector<double> values, double own);  // those that are not `own`

// A part of the elements that a sum reads.
struct PartOfSum {
  std::string left_out;  // "the last 16 elements"
  std::function<at::Tensor(const at::Tensor& i, int64_t n)> reads;
  bool of_all = false;  // depends on n

  // The n elements in the last dimension of x, 0 where the sum does not read them.
  at::Tensor kept(const at::Tensor& x) const;
};
// The parts to which loops over threads, warps, vectors and tiles cut a sum of n elements.
std::vector<PartOfSum> parts_of_sum(int64_t n);

class BugTable {
 public:
  enum Kind { kFrequent, kInLayersToo, kRare, kInLayersAlone };

  BugTable(const ModelConfig& of, int seen_rows) : config(of), rows(seen_rows) {}

  void add(std::string name, std::string text, Hooks hooks, Kind kind = kFrequent) {
    rows_.push_back(
        {std::move(name), std::move(text), std::make_shared<const Hooks>(std::move(hooks)), kind});
  }
  void rare(std::string name, std::string text, Hooks hooks) {
    add(std::move(name), std::move(text), std::move(hooks), kRare);
  }

  // Powers of 2 from `least` on that are below the number of rows that the runs have.
  std::vector<int> counts_of_rows(int least) const;
  std::vector<KnownBug> list() const;

  const ModelConfig& config;
  const int rows;

 private:
  struct Row {
    std::string name, text;
    std::shared_ptr<const Hooks> hooks;
    Kind kind;
  };
  std::vector<Row> rows_;
};

void add_rope_bugs(BugTable& table);
void add_norm_bugs(BugTable& table);
void add_attention_bugs(BugTable& table);
void add_weight_bugs(BugTable& table);
void add_layer_bugs(BugTable& table);  // residual stream, MLP, order of layers
void add_end_bugs(BugTable& table);    // embedding, head

}  // namespace mkbench
