// Rotary frequencies, bit for bit as transformers scales them.
#include <utility>
#include <vector>

#include "references/model/rope.h"
#include "tests/support/catch2.h"
#include "tests/support/llama3_rope.h"

namespace mkbench {
namespace {

std::vector<float> scaled(const Rope& rope, std::vector<float> frequencies) {
  scale_frequencies(rope, frequencies);
  return frequencies;
}

TEST_CASE("llama3 keeps short waves, divides long ones and mixes between, each step rounded") {
  const Rope rope = testing::llama3_rope(5e5, 32, 8192);
  // Computed in fp32 by the expressions of _compute_llama3_parameters() in transformers 5.17.
  const std::pair<float, float> pairs[] = {
      {1.0f, 1.0f},
      {0x1.4p-8f, 0x1.4p-8f},
      {0x1.7c1bdap-9f, 0x1.613abep-9f},
      {0x1.0624dep-9f, 0x1.208d4cp-10f},
      {0x1.54c986p-10f, 0x1.5c7f78p-12f},
      {0x1.dd1a22p-11f, 0x1.5d15a0p-14f},
      {0x1.93b3a6p-11f, 0x1.a41214p-16f},
      {0x1.a36e2ep-14f, 0x1.a36e2ep-19f},
  };
  for (const auto& [before, after] : pairs) {
    INFO(before);
    CHECK(scaled(rope, {before}) == std::vector<float>{after});
  }
}

TEST_CASE("angles differ where any number of RoPE does") {
  const Rope rope = testing::llama3_rope(1e4, 8, 64);
  Rope others[] = {rope, rope, rope, rope, rope, rope};
  others[0].theta = 1e5;
  others[1].scaling = RopeScaling::kLinear;
  others[2].factor = 9;
  others[3].low_freq_factor = 2;
  others[4].high_freq_factor = 5;
  others[5].original_positions = 65;
  CHECK(rope.same_angles(rope));
  for (const Rope& other : others) CHECK_FALSE(rope.same_angles(other));
}

TEST_CASE("linear scaling divides every frequency, and without scaling none changes") {
  const std::vector<float> plain = inverse_frequencies({.theta = 1e4}, 16);
  REQUIRE(plain.size() == 8);
  CHECK(plain.front() == 1.0f);
  CHECK(scaled({.theta = 1e4}, plain) == plain);
  const Rope linear{.theta = 1e4, .scaling = RopeScaling::kLinear, .factor = 3};
  const std::vector<float> divided = inverse_frequencies(linear, 16);
  for (size_t i = 0; i < plain.size(); ++i) CHECK(divided[i] == plain[i] / 3);
}

}  // namespace
}  // namespace mkbench
