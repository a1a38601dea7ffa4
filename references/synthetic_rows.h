// What the tensors of the analytic checkpoint hold, row by row. Only synthetic_weights.cpp uses it;
// synthetic.h describes the checkpoint as a whole.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "references/model/published.h"
#include "references/synthetic.h"

namespace mkbench {

class SyntheticRows {
 public:
  // `row.shape.layers` layers are made; lags of later layers are ignored. Throws
  // Error(kBadInput) naming the field where a shape has no room for the codewords.
  SyntheticRows(const ShapeRow& row, const Lags& lags);
  ~SyntheticRows();
  SyntheticRows(const SyntheticRows&) = delete;
  SyntheticRows& operator=(const SyntheticRows&) = delete;

  // Writes rows [begin, end) of tensor `number`, `cols` wide; `out` is the tensor's first element.
  // Numbers: 1 embedding, then 11 a layer in LayerWeights' order, the final norm, an untied head.
  void write(int number, int cols, int64_t begin, int64_t end, Bf16* out) const;

  struct Design;
  struct LayerPlan;

 private:
  std::unique_ptr<const Design> design_;
  std::vector<LayerPlan> plans_;
};

}  // namespace mkbench
