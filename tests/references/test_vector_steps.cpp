// Inputs of Engine::decode_vectors(): what is a vector, and which rows of positions are 1-D ones.
#include <string>
#include <vector>

#include "references/vector_steps.h"
#include "tests/support/catch2.h"
#include "tests/support/thrown.h"

namespace mkbench {
namespace {

constexpr int kHidden = 3, kSteps = 4;

std::string refusal(const VectorSteps& steps, int position = 0) {
  return testing::error_line(
      [&] { check_vector_steps("engine x", kSteps, steps, kHidden, position); });
}

// Rows of positions, each from `first` on.
std::vector<int32_t> rows_from(int first) {
  std::vector<int32_t> rows;
  for (int row = 0; row < 3; ++row) {
    for (int t = 0; t < kSteps; ++t) rows.push_back(first + t);
  }
  return rows;
}

TEST_CASE("vectors are finite bf16 numbers") {
  std::vector<Bf16> vectors(kSteps * kHidden, to_bf16(0.25f));
  CHECK(refusal({.in = vectors.data()}) == "accepted");
  CHECK(refusal({}) == "accepted");
  for (const uint16_t finite : {0x7f7f, 0xff7f, 0x0001, 0x8000}) {
    vectors[5] = {finite};
    CHECK(refusal({.in = vectors.data()}) == "accepted");
  }
  for (const uint16_t bad : {0x7f80, 0xff80, 0x7fc0, 0x7f81}) {
    for (const int at : {0, 5, kSteps * kHidden - 1}) {
      std::vector<Bf16> with_one = vectors;
      with_one[static_cast<size_t>(at)] = {bad};
      CHECK(refusal({.in = with_one.data()}) == "engine x: vector " + std::to_string(at / kHidden) +
                                                    ", value " + std::to_string(at % kHidden) +
                                                    " is not finite");
    }
  }
}

TEST_CASE("three equal rows that count on are plain RoPE's positions") {
  CHECK(refusal({.positions = rows_from(0).data()}) == "accepted");
  CHECK(refusal({.positions = rows_from(70).data()}, 70) == "accepted");
  CHECK(refusal({.positions = rows_from(0).data()}, 1) ==
        "engine x: mRoPE positions of step 0: found 0, 0, 0, wanted 1 in each row");
  std::vector<int32_t> gap = rows_from(0);
  for (const size_t last : {3U, 7U, 11U}) gap[last] = 5;
  CHECK(refusal({.positions = gap.data()}) ==
        "engine x: mRoPE positions of step 3: found 5, 5, 5, wanted 3 in each row");
}

TEST_CASE("unequal rows are refused by step and values, whichever row it is") {
  const std::string found[] = {"9, 2, 2", "2, 9, 2", "2, 2, 9"};
  for (size_t row = 0; row < 3; ++row) {
    std::vector<int32_t> rows = rows_from(0);
    rows[row * kSteps + 2] = 9;
    CHECK(refusal({.positions = rows.data()}) ==
          "engine x: mRoPE positions of step 2: found " + found[row] +
              ", wanted three equal rows: mRoPE with unequal rows is unsupported");
  }
}

}  // namespace
}  // namespace mkbench
