// Statistics against published tables, closed forms and simulation; clocks and bytes of a
// sample.
#include <algorithm>
#include <cmath>
#include <random>

#include "harness/measure/sample.h"
#include "harness/measure/statistics.h"
#include "references/base/error.h"
#include "tests/support/catch2.h"

using namespace mkbench;

namespace {

// The sum of twelve uniform numbers less six: close enough to a normal distribution for coverage,
// and equal with every standard library.
double bell(std::mt19937_64& random) {
  double sum = -6;
  for (int i = 0; i < 12; ++i) sum += static_cast<double>(random() >> 11) * 0x1p-53;
  return sum;
}

}  // namespace

TEST_CASE("an interval of positive times never reaches below zero") {
  for (const auto& [low, high, has] :
       {std::tuple(1.0, 3.0, false), {1.0, 1.1, true}, {0.0, 3.0, true}, {-1.0, 1.0, true}}) {
    const Summary s = summarize(std::vector<double>{low, high}, 0.95);
    CHECK(s.ci.has_value() == has);  // 0 and less are no times
    CHECK(std::isfinite(s.rel_sd));
  }
}

TEST_CASE("t quantiles equal the printed tables") {
  CHECK(t_quantile(0.95, 1) == Approx(12.7062).epsilon(1e-5));
  CHECK(t_quantile(0.95, 2) == Approx(4.30265).epsilon(1e-5));
  CHECK(t_quantile(0.95, 9) == Approx(2.26216).epsilon(1e-5));
  CHECK(t_quantile(0.99, 9) == Approx(3.24984).epsilon(1e-5));
  CHECK(t_quantile(0.90, 29) == Approx(1.69913).epsilon(1e-5));
  CHECK(t_quantile(0.95, 1000000) == Approx(1.95997).epsilon(1e-5));
  // One degree of freedom is the Cauchy distribution: tan(pi c / 2).
  CHECK(t_quantile(0.5, 1) == Approx(1.0).epsilon(1e-9));
  for (const double none : {0.0, 1.0}) CHECK_THROWS_AS(t_quantile(none, 5), Error);
  CHECK_THROWS_AS(t_quantile(0.95, 0), Error);
}

TEST_CASE("summary of a small set") {
  const std::vector<double> values = {4, 1, 3, 2};
  const Summary s = summarize(values, 0.95);
  CHECK(s.count == 4);
  CHECK(s.mean == Approx(2.5));
  CHECK(s.median == Approx(2.5));
  CHECK(s.min == 1);
  CHECK(s.max == 4);
  CHECK(s.rel_sd == Approx(std::sqrt(5.0 / 3) / 2.5));
  REQUIRE(s.ci);
  CHECK(s.ci->high - s.ci->low == Approx(2 * 3.18245 * std::sqrt(5.0 / 3) / 2).epsilon(1e-5));
  CHECK_FALSE(summarize(std::vector<double>{7}, 0.95).ci);
  CHECK(summarize(std::vector<double>{}, 0.95).count == 0);
}

TEST_CASE("the median lies between order statistics") {
  const std::vector<double> values = {7, 1, 2, 3, 12, 4, 5, 6, 8, 9, 10, 11};
  // P(at most 2 of 12 lie below the median) = 79 / 4096 = 0.019; at most 3: 0.073.
  const auto interval = median_interval(values, 0.95);
  REQUIRE(interval);
  CHECK(interval->low == 3);
  CHECK(interval->high == 10);
  CHECK(median_interval(values, 0.9995)->low == 1);
  CHECK(median_interval(std::vector<double>{1, 2, 3, 4, 5, 6}, 0.95)->high == 6);
  CHECK_FALSE(median_interval(std::vector<double>{1, 2, 3, 4, 5}, 0.95));
  // Levels that are met exactly: tails of 1 and of 6 in 32.
  CHECK(median_interval(std::vector<double>{1, 2, 3, 4, 5}, 1 - 2.0 / 32)->low == 1);
  CHECK(median_interval(std::vector<double>{1, 2, 3, 4, 5}, 1 - 12.0 / 32)->low == 2);
  CHECK_FALSE(median_interval(std::vector<double>{}, 0.95));
}

TEST_CASE(
    "BCa's ends are the percentiles that Efron's formula names, whichever way the tail points") {
  const double z95 = 1.959964;
  for (const double sign : {1.0, -1.0}) {
    std::vector<double> values = {1, 1.1, 1.2, 1.3, 1.4, 1.6, 1.9, 2.3, 3, 4.5, 7, 12};
    double mean = 0, squares = 0, cubes = 0;
    for (double& v : values) mean += (v *= sign) / 12;
    for (const double v : values) squares += std::pow(v - mean, 2), cubes += std::pow(v - mean, 3);
    const double a = cubes / (6 * std::pow(squares, 1.5));
    std::mt19937_64 random(3);
    std::vector<double> means(100000);
    for (double& m : means) {
      double sum = 0;
      for (size_t i = 0; i < values.size(); ++i) sum += values[random() % values.size()];
      m = sum / 12;
    }
    std::sort(means.begin(), means.end());
    const auto normal = [](double z) { return 0.5 * std::erfc(-z / std::sqrt(2.0)); };
    const auto below = std::lower_bound(means.begin(), means.end(), mean) - means.begin();
    double z0 = -1;  // normal(z0) is the share of means below the mean
    while (normal(z0) * 1e5 < static_cast<double>(below)) z0 += 1e-4;
    const auto at = [&](double z) {
      return means[static_cast<size_t>(1e5 * normal(z0 + (z0 + z) / (1 - a * (z0 + z))))];
    };
    const auto bca = bca_interval(values, 0.95, 7, 100000);
    REQUIRE(bca);
    CHECK(std::abs(a) > 0.08);  // without a tail there would be nothing to see
    CHECK(bca->low == Approx(at(-z95)).margin(0.05));
    CHECK(bca->high == Approx(at(z95)).margin(0.05));
    const auto again = bca_interval(values, 0.95, 7, 100000);
    CHECK((again->low == bca->low && again->high == bca->high));
  }
  const std::vector<double> one = {1}, two = {1, 2}, same = {2, 2, 2};
  CHECK_FALSE(bca_interval(one, 0.95, 7));
  CHECK_FALSE(bca_interval(two, 0.95, 7, 0));
  CHECK(bca_interval(two, 0.95, 7, 1));
  CHECK((bca_interval(same, 0.95, 7)->low == 2 && bca_interval(same, 0.95, 7)->high == 2));
}

TEST_CASE("intervals cover the truth about as often as they say") {
  std::mt19937_64 random(20);
  int t_hits = 0, bca_hits = 0;
  const int trials = 400;
  for (int i = 0; i < trials; ++i) {
    std::vector<double> values(12);
    for (double& v : values) v = 5 + bell(random);
    const auto t = summarize(values, 0.9).ci;
    const auto bca = bca_interval(values, 0.9, 3, 500);
    REQUIRE((t && bca));
    t_hits += t->low <= 5 && 5 <= t->high;
    bca_hits += bca->low <= 5 && 5 <= bca->high;
  }
  // 0.9 within four standard errors (0.06); with 12 values the bootstrap interval is a little
  // short.
  CHECK(std::abs(t_hits / double{trials} - 0.9) < 0.06);
  CHECK(std::abs(bca_hits / double{trials} - 0.88) < 0.08);
}

TEST_CASE("percentiles are withheld where too few values support them") {
  std::vector<double> values(99);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i);
  CHECK_FALSE(percentile(values, 99));
  CHECK_FALSE(percentile(values, 1));
  values.push_back(99);
  CHECK(percentile(values, 1));
  REQUIRE(percentile(values, 99));
  CHECK(*percentile(values, 99) == Approx(98.01));
  CHECK(*percentile(values, 50) == Approx(49.5));
  CHECK(*percentile(values, 0) == 0);
  CHECK(*percentile(values, 100) == 99);
  std::shuffle(values.begin(), values.end(), std::mt19937_64(1));
  CHECK(*percentile(values, 50) == Approx(49.5));
  CHECK_FALSE(percentile(std::vector<double>{}, 50));
  CHECK_FALSE(percentile(std::vector<double>(9, 1.0), 90));
  for (const double none : {-1, 101}) CHECK_THROWS_AS(percentile(values, none), Error);
}

TEST_CASE(
    "the deviation of the middle 80 % is that of a normal distribution, whatever one outlier") {
  std::mt19937_64 random(7);
  std::vector<double> values;
  for (int i = 0; i < 4000; ++i) values.push_back(3 * bell(random));
  CHECK(*middle_deviation(values) == Approx(3).margin(0.15));
  values.resize(20);
  const double before = *middle_deviation(values);
  *std::max_element(values.begin(), values.end()) = 1e6;
  CHECK(*middle_deviation(values) == before);
  values.resize(9);
  CHECK_FALSE(middle_deviation(values));
}

TEST_CASE("block orders: abba balances places, random is a seeded permutation") {
  const auto abba = block_orders(3, 8, false, 0);
  REQUIRE(abba.size() == 8);
  CHECK(abba[0] == std::vector<int>{0, 1, 2});
  CHECK(abba[1] == std::vector<int>{2, 1, 0});
  CHECK(abba[2] == std::vector<int>{2, 1, 0});
  CHECK(abba[3] == std::vector<int>{0, 1, 2});
  CHECK(abba[4] == abba[0]);

  const auto random = block_orders(4, 50, true, 9);
  CHECK(random == block_orders(4, 50, true, 9));
  CHECK(random != block_orders(4, 50, true, 10));
  // A seed of a report gives these orders everywhere.
  CHECK(block_orders(3, 3, true, 1) ==
        std::vector<std::vector<int>>{{1, 2, 0}, {2, 0, 1}, {0, 2, 1}});
  std::vector<int> first(4);
  for (std::vector<int> order : random) {
    ++first[static_cast<size_t>(order[0])];
    std::sort(order.begin(), order.end());
    CHECK(order == std::vector<int>{0, 1, 2, 3});
  }
  for (const int count : first) CHECK(count >= 4);  // every engine comes first in some blocks
}

TEST_CASE("outliers lie more than three interquartile ranges beyond the middle half") {
  // The middle half is 10 to 12, so that the bounds are 4 and 18.
  for (const auto& [low, high, count] :
       {std::tuple(4, 18, 0), {3, 18, 1}, {4, 19, 1}, {-5, 30, 2}}) {
    CHECK(count_outliers(std::vector<double>{10, 1.0 * high, 11, 12, 11, 10, 1.0 * low, 12, 11}) ==
          count);
  }
  CHECK(count_outliers(std::vector<double>{1, 1, 100}) == 0);  // too few
  CHECK(count_outliers(std::vector<double>{1, 1, 1, 1, 1, 1, 1, 2}) == 1);
}

TEST_CASE("no token takes less than its bytes, less L2, need at the memory's pins") {
  const MemoryBound bound = memory_bound({.shape = kQwen3_0_6B}, 512, 129, 0, 3352, 50'000'000);
  // 596,049,920 parameters of 2 bytes, and (512 + 64) rows of 114,688 bytes.
  CHECK(bound.bytes_per_token == Approx(2.0 * 596'049'920 + 576.0 * 114'688));
  CHECK(bound.cached_bytes == 50'000'000);
  CHECK(bound.least_ms == Approx((bound.bytes_per_token - 50e6) / 3352e9 * 1e3));
  // A prefill reads the weights once, whatever its length and the depth.
  const MemoryBound prefill = memory_bound({.shape = kQwen3_0_6B}, 512, 8, 512, 4917, 60'000'000);
  CHECK(512 * prefill.bytes_per_token == Approx(2.0 * 596'049'920));
  CHECK(512 * prefill.least_ms == Approx((2.0 * 596'049'920 - 60e6) / 4917e9 * 1e3));
  // An outline has no shape. This one's step reads 300 bytes of each row, and 70 of the last 100 rows.
  const ModelConfig outline{.outline_bytes = 9,
                            .reads = {.fixed = 1'000'000, .rows = {{300, 0}, {70, 100}}}};
  CHECK(memory_bound(outline, 98, 3, 0, 1, 0).bytes_per_token == 1'000'000 + 99 * 370);
  CHECK(memory_bound(outline, 99, 3, 0, 1, 0).bytes_per_token == 1'000'000 + 100 * 370);
  CHECK(memory_bound(outline, 100, 3, 0, 1, 0).bytes_per_token == 1'000'000 + 101 * 300 + 7'000);
  CHECK(memory_bound(outline, 100, 8, 512, 1, 0).bytes_per_token == 1'000'000 / 512.0);
  CHECK(memory_bound({.outline_bytes = 9}, 0, 1, 0, 1, 0).bytes_per_token == 0);
  CHECK(served_from_l2(399, 100) == "weights and KV (0.0 MB) are under 4 x L2 (0.0 MB)");
  CHECK(served_from_l2(400, 100).empty());
  // All of tiny fits into L2: no time is too short for it.
  CHECK(memory_bound({.shape = kTiny}, 0, 128, 0, 3352, 50'000'000).least_ms == 0);
  for (const double unknown : {0.0, std::nan(""), HUGE_VAL}) {
    const MemoryBound none = memory_bound({.shape = kQwen3_0_6B}, 0, 1, 0, unknown, 50'000'000);
    CHECK(none.pin_gb_per_s == 0);
    CHECK(none.least_ms == 0);
  }
}
