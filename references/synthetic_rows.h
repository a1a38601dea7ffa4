// What the tensors of the analytic checkpoint hold, row by row. Only synthetic_weights.cpp uses it;
// synthetic.h describes the checkpoint as a whole.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "references/model/published.h"
#include "references/synthetic.h"

namespace mkbench {

struct SyntheticDesign;
struct SyntheticLayer;

class SyntheticRows {
 public:
  // `row.shape.layers` layers are made; lags of later layers are ignored. Throws
  // Error(kBadInput) naming the field where a shape has no room for the codewords.
  SyntheticRows(const ShapeRow& row, const Lags& lags, uint64_t salt = 0);
  ~SyntheticRows();
  SyntheticRows(const SyntheticRows&) = delete;
  SyntheticRows& operator=(const SyntheticRows&) = delete;

  // Writes rows [begin, end) of tensor `number`, `cols` wide; `out` is the tensor's first element.
  // synthetic_plan.h has the numbers.
  void write(int number, int cols, int64_t begin, int64_t end, Bf16* out) const;

 private:
  std::unique_ptr<const SyntheticDesign> design_;
  std::vector<SyntheticLayer> plans_;
};

}  // namespace mkbench
