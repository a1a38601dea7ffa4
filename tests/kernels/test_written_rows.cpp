// kernels/written_rows.h: how rows were written, for those that are written once more.
#include "kernels/written_rows.h"
#include "tests/support/catch2.h"

namespace mkbench {
namespace {

using Way = WrittenRows::Way;

// The parts of rows [first, end), each as its way's number and its ids.
std::vector<std::vector<int>> parts(const WrittenRows& rows, int first, int end) {
  std::vector<std::vector<int>> all;
  while (first < end) {
    const WrittenRows::Part part = rows.part(first, end);
    all.push_back({static_cast<int>(part.way)});
    all.back().insert(all.back().end(), part.ids.begin(), part.ids.end());
    first += static_cast<int>(part.ids.size());
  }
  return all;
}

TEST_CASE("rows are written again in the way in which they were written") {
  constexpr int kStep = 0, kBatch = 1, kWithoutId = 2;
  WrittenRows rows;
  rows.add(0, std::vector{5, 6, 7}, Way::kBatch);
  rows.add(3, std::vector{8}, Way::kStep);
  rows.add(4, std::vector{9, 10}, Way::kStep);
  CHECK(parts(rows, 0, 6) == std::vector<std::vector<int>>{{kBatch, 5, 6, 7}, {kStep, 8, 9, 10}});
  CHECK(parts(rows, 2, 5) == std::vector<std::vector<int>>{{kBatch, 7}, {kStep, 8, 9}});
  // The rows from 4 on are others now, and there is one fewer.
  rows.add(4, std::vector{11}, Way::kBatch);
  CHECK(parts(rows, 3, 6) ==
        std::vector<std::vector<int>>{{kStep, 8}, {kBatch, 11}, {kWithoutId, -1}});
  rows.clear();
  rows.add(2, std::vector{4}, Way::kStep);  // above rows that no id has written
  CHECK(parts(rows, 0, 3) == std::vector<std::vector<int>>{{kWithoutId, -1, -1}, {kStep, 4}});
}

}  // namespace
}  // namespace mkbench
