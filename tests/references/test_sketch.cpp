// Sketches of logits, and the text in which a reference holds them.
#include <random>
#include <tuple>

#include "references/base/base64.h"
#include "references/base/error.h"
#include "references/greedy_reference.h"
#include "tests/support/catch2.h"

using namespace mkbench;

TEST_CASE("floats from base64: values, and what is refused") {
  // 1, -2.5 and 0 as little-endian fp32, by another program.
  CHECK(floats_from_base64("AACAPwAAIMAAAAAA") == std::vector<float>{1, -2.5F, 0});
  CHECK(floats_from_base64("AACAPw==") == std::vector<float>{1});
  CHECK(floats_from_base64("") == std::vector<float>{});
  for (const char* text :
       {"AACAPw=", "AACAPw", "AACA", "AAC*Pw==", "====", "AACAPw==AACAPw==", "AA==AACAPwAAIMAA"}) {
    INFO(text);
    CHECK_FALSE(floats_from_base64(text));
  }
}

TEST_CASE("a sketch is the projection on its seeded signs") {
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  for (const auto& [vocab, seed, projections] : {std::tuple{259, 1ull, 32},
                                                 {1000, 1ull, 7},
                                                 {1001, 1ull, 512},
                                                 {259, 99ull, 32},
                                                 {259, 99ull, 64},
                                                 {259, 1ull, 64}}) {
    std::vector<float> z(static_cast<size_t>(vocab));
    for (float& x : z) x = 3 + normal(random);
    double mean = 0;
    for (float x : z) mean += x;
    mean /= vocab;
    const std::vector<float> sketch = sketch_of(z.data(), vocab, seed, projections);
    REQUIRE(sketch.size() == static_cast<size_t>(projections));
    for (int p = 0; p < projections; ++p) {
      double sum = 0;
      for (int id = 0; id < vocab; ++id) {
        sum += sketch_sign(seed, p, id) * (z[static_cast<size_t>(id)] - mean);
      }
      CHECK(sketch[static_cast<size_t>(p)] == Approx(sum).margin(1e-3));
    }
  }
  CHECK_THROWS_AS(sketch_of(nullptr, 0, 1, kMaxProjections + 1), Error);
}
