// How each KV row of a sequence came to be, so that rows can be written once more with equal bits. A
// row's bits depend on the rows before it, its id, and on whether a step or batched prefill computed it,
// but not on how many rows were computed together.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace mkbench {

class WrittenRows {
 public:
  enum class Way { kStep, kBatch, kWithoutId };  // kWithoutId: from a vector, or zeroed

  void clear() { rows_.clear(); }
  // The rows from `first` on are now those of `ids`, and there are none above them. Rows below `first`
  // that were never added are kWithoutId.
  void add(int first, std::span<const int32_t> ids, Way way) {
    rows_.resize(static_cast<size_t>(first), {-1, Way::kWithoutId});
    for (const int32_t id : ids) rows_.push_back({id, way});
  }

  struct Part {
    std::vector<int32_t> ids;
    Way way = Way::kWithoutId;
  };
  // The most rows from `first` on, below `end` > first, that were written in one way.
  Part part(int first, int end) const {
    Part part;
    for (int i = first; i < end; ++i) {
      const Row row = static_cast<size_t>(i) < rows_.size() ? rows_[static_cast<size_t>(i)] : Row{};
      if (i > first && row.way != part.way) break;
      part.way = row.way;
      part.ids.push_back(row.id);
    }
    return part;
  }

 private:
  struct Row {
    int32_t id = -1;
    Way way = Way::kWithoutId;
  };
  std::vector<Row> rows_;
};

}  // namespace mkbench
