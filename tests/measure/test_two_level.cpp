// Statistics of blocks of several processes: intervals that cover, drift, ratios and their verdicts.
#include <cmath>
#include <random>

#include "harness/measure/two_level.h"
#include "references/base/error.h"
#include "tests/support/catch2.h"

namespace mkbench {
namespace {

// Nearly normal: the sum of twelve uniform numbers less six.
double bell(std::mt19937_64& random) {
  double sum = -6;
  for (int i = 0; i < 12; ++i) sum += static_cast<double>(random() >> 11) * 0x1p-53;
  return sum;
}

// Blocks of a run: each process has a level of its own, and its blocks follow one another with the
// correlation `phi`.
struct World {
  double mean = 1, process_sd = 0, block_sd = 0, phi = 0;

  ByProcess run(std::mt19937_64& random, int processes, int blocks) const {
    ByProcess all;
    for (int p = 0; p < processes; ++p) {
      const double level = mean + process_sd * bell(random);
      double state = bell(random);
      std::vector<double>& values = all.emplace_back();
      for (int b = 0; b < blocks; ++b) {
        values.push_back(level + block_sd * state);
        state = phi * state + std::sqrt(1 - phi * phi) * bell(random);
      }
    }
    return all;
  }
};

// The share of 2,000 runs whose interval holds the mean of the world.
template <typename Covers>
double share_of_runs(const Covers& covers) {
  std::mt19937_64 random(20261123);
  constexpr int kRuns = 2000;
  int covered = 0;
  for (int i = 0; i < kRuns; ++i) covered += covers(random);
  return static_cast<double>(covered) / kRuns;
}

bool holds(const std::optional<Interval>& ci, double value) {
  return ci && ci->low <= value && value <= ci->high;
}

TEST_CASE("the interval of five processes covers at its level, that of their blocks does not") {
  const World world{.process_sd = 0.003, .block_sd = 0.001};
  const double two_level = share_of_runs([&](auto& random) {
    return holds(summarize_processes(world.run(random, 5, 10), 0.95).ci, 1);
  });
  CHECK(two_level > 0.93);
  CHECK(two_level < 0.97);
  // What takes 50 blocks as independent hides the processes.
  const double pooled = share_of_runs([&](auto& random) {
    std::vector<double> blocks;
    for (const auto& values : world.run(random, 5, 10))
      blocks.insert(blocks.end(), values.begin(), values.end());
    return holds(summarize(blocks, 0.95).ci, 1);
  });
  CHECK(pooled < 0.6);
  // Blocks that follow one another change nothing of it.
  const World slow{.process_sd = 0.003, .block_sd = 0.003, .phi = 0.7};
  CHECK(share_of_runs([&](auto& random) {
          return holds(summarize_processes(slow.run(random, 5, 10), 0.95).ci, 1);
        }) > 0.93);
}

TEST_CASE("the ratio of two engines covers over processes, and its level is that asked for") {
  const World slow{.mean = 2, .process_sd = 0.006, .block_sd = 0.002};
  const World fast{.mean = 1, .process_sd = 0.003, .block_sd = 0.001};
  for (const double confidence : {0.8, 0.95}) {
    const double covered = share_of_runs([&](auto& random) {
      const ByProcess base = slow.run(random, 5, 4), own = fast.run(random, 5, 4);
      std::vector<PairedBlocks> pairs;
      for (size_t p = 0; p < base.size(); ++p) pairs.push_back({base[p], own[p]});
      return holds(paired_speedup(pairs, confidence, 1).ci, 2);
    });
    CHECK(covered > confidence - 0.02);
    CHECK(covered < confidence + 0.02);
  }
}

TEST_CASE("blocks of one process that follow one another widen its interval") {
  const World world{.block_sd = 0.01, .phi = 0.6};
  const auto covered = [&](int blocks, bool inflated) {
    return share_of_runs([&](auto& random) {
      const ByProcess run = world.run(random, 1, blocks);
      return holds((inflated ? summarize_processes(run, 0.95) : summarize(run[0], 0.95)).ci, 1);
    });
  };
  CHECK(covered(40, false) < 0.75);
  // Without the correction of the bias 0.85 and 0.90, with as many degrees of freedom as blocks 0.87
  // and 0.91.
  CHECK(covered(20, true) > 0.89);
  CHECK(covered(40, true) > 0.92);

  // Independent blocks keep theirs, save where chance correlates them.
  const World free{.block_sd = 0.01};
  std::mt19937_64 random(5);
  int widened = 0;
  for (int i = 0; i < 500; ++i)
    widened += summarize_processes(free.run(random, 1, 40), 0.95).inflation > 1;
  CHECK(widened < 75);
}

TEST_CASE("lag-1 and the factor of the variance, worked out by hand") {
  // Deviations -3 -1 1 3 about 4: neighbours' products 3 - 1 + 3 over squares 20 are 0.25, and the
  // bias of four values is (1 + 3 x 0.25) / 4.
  const Drift rising = drift_of({{1, 3, 5, 7}});
  CHECK(*rising.lag1 == Approx(0.6875));
  CHECK(variance_inflation(rising) == Approx(1.6875 / 0.3125));
  CHECK(*rising.slope == Approx(0.5));  // two a block, of a mean of four
  CHECK(*rising.slope_p == 0);
  // Slope 0.8, t = 1.886 with two degrees of freedom: 1 - t / sqrt(t^2 + 2).
  CHECK(*drift_of({{1, 2, 4, 3}}).slope_p == Approx(0.2));
  // Two processes share one lag-1 and one slope; a level of their own is no trend.
  const Drift both = drift_of({{1, 3, 5, 7}, {101, 103, 105, 107}});
  CHECK(*both.lag1 == Approx(0.6875));
  CHECK(*both.slope == Approx(2.0 / 54));
  const Drift falling = drift_of({{7, 5, 3, 1}, {1, 3, 5, 7}});
  CHECK(*falling.slope == Approx(0).margin(1e-12));
  CHECK(*falling.slope_p == Approx(1));
  const Drift jumping = drift_of({{1, 2, 1, 2, 1, 2}});
  CHECK((*jumping.lag1 < -0.8 && *jumping.lag1 >= -1));
  CHECK(variance_inflation(jumping) == 1);  // never narrower
  CHECK(variance_inflation({.lag1 = 0.2, .slope = {}, .slope_p = {}}) == 1);
  CHECK(variance_inflation({.lag1 = 1.0, .slope = {}, .slope_p = {}}) == Approx(19));
  for (const ByProcess& none : {ByProcess{}, ByProcess{{1, 2, 3}}, ByProcess{{1, 2}, {1, 2}},
                                ByProcess{{5, 5, 5, 5}}, ByProcess{{-1, 1, -1, 1}}}) {
    CHECK_FALSE(drift_of(none).lag1);
    CHECK_FALSE(drift_of(none).slope);
  }
}

TEST_CASE("the interval of correlated blocks has the degrees of freedom of as many fewer") {
  // Deviations of +-1 in runs of three: squares 12, neighbours' products 8 - 3 = 5, so that lag-1 is
  // 5 / 12 + (1 + 3 x 5 / 12) / 12 and the variance 4.05-fold: 12 blocks count as 3.
  const Summary s = summarize_processes({{9, 9, 9, 11, 11, 11, 9, 9, 9, 11, 11, 11}}, 0.95);
  const double lag1 = 5.0 / 12 + 2.25 / 12, factor = (1 + lag1) / (1 - lag1);
  CHECK(*s.lag1 == Approx(lag1));
  CHECK(s.inflation == Approx(factor));
  const double error = std::sqrt(12.0 / 11 / 12 * factor);
  CHECK(s.ci->high - s.mean == Approx(t_quantile(0.95, 3) * error));  // never fewer than 3
  // Thrice as many blocks, and a factor of 2.44: 36 count as 14.7.
  std::vector<double> more;
  for (int i = 0; i < 36; ++i) more.push_back(i / 3 % 2 == 0 ? 9 : 11);
  const Summary t = summarize_processes({more}, 0.95);
  CHECK(36 / t.inflation == Approx(14.74).epsilon(1e-3));
  CHECK(t.ci->high - t.mean ==
        Approx(t_quantile(0.95, 13) * std::sqrt(36.0 / 35 / 36 * t.inflation)));
}

TEST_CASE("a trend is told from noise") {
  std::mt19937_64 random(3);
  const World world{.block_sd = 0.001};
  int found = 0, noticed = 0;
  for (int i = 0; i < 400; ++i) {
    ByProcess flat = world.run(random, 2, 10);
    found += *drift_of(flat).slope_p < 0.05;
    for (auto& values : flat) {
      for (size_t b = 0; b < values.size(); ++b) values[b] += 0.0005 * static_cast<double>(b);
    }
    noticed += *drift_of(flat).slope_p < 0.05;
  }
  CHECK((found >= 8 && found <= 34));  // 20 are expected
  CHECK(noticed > 390);
}

TEST_CASE("the order of processes changes nothing, and a summary tells their drift and outliers") {
  ByProcess some = {{1, 2, 4, 3}, {2, 3, 5, 60}, {3, 4, 6, 5}};
  const Summary one = summarize_processes(some, 0.95);
  const Drift drift = drift_of(some);
  std::vector<PairedBlocks> pairs;
  for (const auto& values : some) pairs.push_back({values, some[0]});
  const PairedSpeedup speedup = paired_speedup(pairs, 0.95, {});
  const TimeRatio ratio = unpaired_ratio(some, {{1}, {3}}, 0.95);
  CHECK((one.lag1 == drift.lag1 && one.slope == drift.slope && one.slope_p == drift.slope_p));
  CHECK((one.outliers == 1 && one.min == 1 && one.max == 60));
  std::reverse(some.begin(), some.end());
  std::reverse(pairs.begin(), pairs.end());
  const Summary turned = summarize_processes(some, 0.95);
  CHECK((turned.mean == Approx(one.mean) && *turned.process_rel_sd == Approx(*one.process_rel_sd)));
  CHECK((*turned.lag1 == Approx(*one.lag1) && *turned.slope_p == Approx(*one.slope_p)));
  CHECK(paired_speedup(pairs, 0.95, {}).ci->low == Approx(speedup.ci->low));
  CHECK(unpaired_ratio(some, {{3}, {1}}, 0.95).ci->low == Approx(ratio.ci->low));
  CHECK_FALSE(summarize_processes({{-1, -1}, {1, 1}}, 0.95).process_rel_sd);  // of a mean of 0
  CHECK(summarize_processes({{0, 1}, {3}}, 0.95).ci);                         // 0 is no time
}

TEST_CASE("a process counts once, however many blocks it has") {
  const Summary s = summarize_processes({{1, 1, 1, 1, 1, 1}, {}, {3, 3}}, 0.95);
  CHECK((s.count == 8 && s.processes == 2));
  CHECK(s.mean == Approx(2));
  CHECK(s.median == 1);
  CHECK(s.inflation == 1);
  CHECK(*s.process_rel_sd == Approx(std::sqrt(2.0) / 2));
  CHECK_FALSE(s.ci);  // 2 +- 12.7: below zero
  const Summary near = summarize_processes({{1.00, 1.02}, {1.03}}, 0.95);
  REQUIRE(near.ci);
  CHECK(near.ci->high - near.mean == Approx(12.706 * 0.01).epsilon(1e-3));
  CHECK(summarize_processes({{1.0, 1.1}}, 0.95).ci);
  CHECK_FALSE(summarize_processes({{1.0}}, 0.95).ci);
  CHECK_FALSE(summarize_processes({{1.0, 1.1}}, 0.95).process_rel_sd);
  CHECK(summarize_processes({}, 0.95).count == 0);
}

TEST_CASE("the ratio of two runs covers whatever their scatter and their processes") {
  const World few{.mean = 1, .process_sd = 0.008, .block_sd = 0.002};
  const World many{.mean = 1.02, .process_sd = 0.002, .block_sd = 0.002};
  for (const auto& [first, second] : {std::pair(5, 5), std::pair(3, 12), std::pair(12, 3)}) {
    for (const double confidence : {0.8, 0.95}) {
      const double covered = share_of_runs([&, first = first, second = second](auto& random) {
        return holds(
            unpaired_ratio(few.run(random, first, 4), many.run(random, second, 4), confidence).ci,
            1.02);
      });
      CHECK(covered > confidence - 0.02);
      CHECK(covered < confidence + 0.035);  // degrees of freedom are rounded down
    }
  }
}

TEST_CASE("the ratio of two runs, worked out by hand") {
  // ln of the means: 0 and 0.2; 0.3 and 0.5 and 0.7. Variances of their means: 0.02 / 2, 0.04 / 3.
  const auto run = [](std::initializer_list<double> logs) {
    ByProcess processes;
    for (const double log : logs) processes.push_back({std::exp(log) - 0.01, std::exp(log) + 0.01});
    return processes;
  };
  const TimeRatio r = unpaired_ratio(run({0, 0.2}), run({0.3, 0.5, 0.7}), 0.95);
  CHECK((r.base_processes == 2 && r.head_processes == 3));
  CHECK(std::log(r.ratio) == Approx(0.4));
  // (0.01 + 0.01333)^2 / (0.01^2 / 1 + 0.01333^2 / 2) = 2.88 degrees of freedom, taken as 2.
  REQUIRE(r.ci);
  CHECK(std::log(r.ci->high) == Approx(0.4 + 4.30265 * std::sqrt(0.01 + 0.04 / 3)));
  CHECK(std::log(r.ci->low) == Approx(0.4 - 4.30265 * std::sqrt(0.01 + 0.04 / 3)));
  CHECK(r.scatter == Approx(std::sqrt(0.02 + 0.04)));
  // Swapped sides give the inverse, ends swapped.
  const TimeRatio swapped = unpaired_ratio(run({0.3, 0.5, 0.7}), run({0, 0.2}), 0.95);
  CHECK(swapped.ratio == Approx(1 / r.ratio));
  CHECK(swapped.ci->high == Approx(1 / r.ci->low));

  // A process counts once, however many blocks it has, and an empty one not at all.
  const TimeRatio uneven = unpaired_ratio({{2}, {}, {2, 2, 2}}, {{4, 4}, {4}}, 0.95);
  CHECK((uneven.base_processes == 2 && uneven.head_processes == 2));
  CHECK(uneven.ratio == Approx(2));
  REQUIRE(uneven.ci);  // no scatter at all
  CHECK((uneven.ci->low == Approx(2) && uneven.ci->high == Approx(2)));

  CHECK_FALSE(unpaired_ratio({{1, 2}}, {{1}, {2}}, 0.95).ci);
  CHECK_FALSE(unpaired_ratio({{1}, {2}}, {{1, 2}}, 0.95).ci);
  CHECK(unpaired_ratio({{1, 3}}, {{4}}, 0.95).ratio == Approx(2));
  CHECK(unpaired_ratio({}, {{1}}, 0.95).ratio == 0);
  CHECK(unpaired_ratio({{1}}, {{}}, 0.95).ratio == 0);
  CHECK_THROWS_AS(unpaired_ratio({{1}, {0, 0}}, {{1}}, 0.95), Error);
}

TEST_CASE("no number of processes is said where it is unknown, or beyond a thousand") {
  TimeRatio ratio{.ratio = 1, .ci = Interval{0.9, 1.1}, .base_processes = 2, .head_processes = 2};
  const auto needed = [&](double scatter) {
    ratio.scatter = scatter;
    return processes_to_tell(ratio, 0.01, 0.999);
  };
  CHECK(needed(0) == 2);
  // With 1000: (3.3003 + 1.2816) x scatter / sqrt(1000) <= ln(1.02 / 1.01)
  CHECK(needed(0.06798) == 1000);
  CHECK(needed(0.06801) == 0);
  ratio.ci.reset();
  CHECK(needed(0) == 0);
}

TEST_CASE("paired speed-up is the geometric mean of ratios, and pairing removes common drift") {
  std::mt19937_64 random(11);
  std::vector<double> slow, fast;
  for (int b = 0; b < 10; ++b) {
    const double drift = 1 + 0.2 * b;  // both engines slow down alike
    slow.push_back(8 * drift * std::exp(0.001 * bell(random)));
    fast.push_back(2 * drift * std::exp(0.001 * bell(random)));
  }
  const PairedSpeedup s = paired_speedup({{slow, fast}}, 0.95, 1);
  CHECK((s.blocks == 10 && s.processes == 1));
  CHECK(s.speedup == Approx(4).epsilon(2e-3));
  REQUIRE((s.ci && s.bca_ci));
  CHECK((s.ci->low < s.speedup && s.speedup < s.ci->high));
  CHECK(s.ci->high - s.ci->low < 0.02);
  CHECK((s.bca_ci->low < s.speedup && s.speedup < s.bca_ci->high));
  // Swapped roles give the inverse, ends swapped.
  const PairedSpeedup inverse = paired_speedup({{fast, slow}}, 0.95, 1);
  CHECK(inverse.speedup == Approx(1 / s.speedup));
  CHECK(inverse.ci->low == Approx(1 / s.ci->high));

  slow.resize(8), fast.resize(8);
  CHECK(paired_speedup({{slow, fast}}, 0.95, 1).ci);
  slow.resize(7);
  CHECK_THROWS_AS(paired_speedup({{slow, fast}}, 0.95, 1), Error);
  fast.resize(7);
  CHECK_FALSE(paired_speedup({{slow, fast}}, 0.95, 1).ci);  // below 8 blocks
  CHECK_THROWS_AS(paired_speedup({{{0, 1}, {1, 1}}}, 0.95, 1), Error);
  CHECK_THROWS_AS(paired_speedup({{{1, 1}, {1, 0}}}, 0.95, 1), Error);
  CHECK(paired_speedup({}, 0.95, 1).blocks == 0);
}

TEST_CASE("ratios of processes: each counts once, and two give an interval") {
  const PairedSpeedup s = paired_speedup({{{2, 2, 2}, {1, 1, 1}}, {{}, {}}, {{8}, {1}}}, 0.95, 1);
  CHECK((s.processes == 2 && s.blocks == 4));
  CHECK(s.speedup == Approx(4));  // of 2 and 8
  REQUIRE(s.ci);
  // ln 2 and ln 8 lie ln 4 apart: their standard error is ln(4) / 2.
  CHECK(std::log(s.ci->high / s.speedup) == Approx(12.7062 * std::log(4.0) / 2).epsilon(1e-4));
}

TEST_CASE("the verdict of a ratio lies beyond the margin, within it, or is none") {
  struct Row {
    double low, high, margin;
    const char* verdict;
  };
  for (const Row& row : std::vector<Row>{{1.011, 1.02, 0.01, "FASTER"},
                                         {1.009, 1.02, 0.01, "INCONCLUSIVE"},
                                         {1.009, 1.02, 0.005, "FASTER"},
                                         {0.98, 0.989, 0.01, "SLOWER"},
                                         {0.98, 0.991, 0.01, "INCONCLUSIVE"},
                                         {0.991, 1.009, 0.01, "SAME"},
                                         {0.991, 1.009, 0.005, "INCONCLUSIVE"},
                                         {1.002, 1.004, 0.005, "SAME"},
                                         {0.9902, 1.009, 0.01, "SAME"},
                                         {0.985, 1.019, 0.1, "SAME"},
                                         {1.065, 1.09, 0.1, "INCONCLUSIVE"},
                                         {0.979, 1.001, 0.1, "INCONCLUSIVE"},
                                         {0.9900, 1.009, 0.01, "INCONCLUSIVE"},
                                         {2, 3, 1, "INCONCLUSIVE"},  // at the margin
                                         {1 / 1.01, 1.01, 0.01, "SAME"},
                                         {0.9, 1.1, 0.01, "INCONCLUSIVE"}}) {
    INFO(row.low << " " << row.high << " " << row.margin);
    CHECK(speed_verdict({row.low, row.high}, row.margin) == row.verdict);
    // Seen from the other engine.
    const std::string turned = speed_verdict({1 / row.high, 1 / row.low}, row.margin);
    const std::string is = row.verdict;
    CHECK(turned == (is == "FASTER" ? "SLOWER" : is == "SLOWER" ? "FASTER" : is));
  }
}

TEST_CASE("the margin comes from a calibration, or is 1 %") {
  CHECK(SpeedMargin{}.value() == 0.01);
  CHECK_THAT(SpeedMargin{}.source, ContainsText("no calibration"));
  CHECK(SpeedMargin{.half_width = 0.001, .source = "x"}.value() == 0.005);
  CHECK(SpeedMargin{.half_width = 0.02, .source = "x"}.value() == Approx(0.03));
}

}  // namespace
}  // namespace mkbench
