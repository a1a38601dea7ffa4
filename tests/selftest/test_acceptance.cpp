// What a sound calibration may miss, and how much `mkbench selftest --timing` records to find out.
#include <cmath>
#include <random>

#include "harness/measure/calibration.h"
#include "harness/selftest/clock_form.h"
#include "tests/support/catch2.h"

using namespace mkbench;

namespace {

constexpr double kConfidence = 0.95;

// Calibrations of `rounds` rounds of one block, each copy's times e^x for a normal x, whose row of so
// many processes misses more often than `most`. As calibrate() draws them, by its comparison.
int count_over(int rounds, int processes, int most, int calibrations) {
  std::mt19937_64 random(3);
  std::normal_distribution<double> normal;
  int over = 0;
  for (int i = 0; i < calibrations; ++i) {
    std::vector<double> ratios(static_cast<size_t>(rounds));
    for (double& ratio : ratios) ratio = 0.01 * normal(random);
    int missed = 0;
    for (const auto& order : block_orders(rounds, kCalibrationSplits, true, random())) {
      std::vector<PairedBlocks> pairs;
      for (int p = 0; p < processes; ++p) {
        const double ratio = ratios[static_cast<size_t>(order[static_cast<size_t>(p)])];
        pairs.push_back({{1}, {std::exp((random() >> 20) % 2 == 0 ? ratio : -ratio)}});
      }
      const Interval ci = *compare_processes(pairs, kConfidence).ci;
      missed += ci.low > 1 || ci.high < 1;
    }
    over += missed > most;
  }
  return over;
}

}  // namespace

TEST_CASE("what chance allows") {
  CHECK(most_by_chance(200, 0.05) == 21);
  CHECK(most_by_chance(10, 0.05) == 4);
  CHECK(most_by_chance(60, 0.05) == 9);
  CHECK(most_by_chance(0, 0.05) == 0);
}

TEST_CASE("draws from few rounds miss together, and more of them are allowed") {
  // Of 100,000 calibrations each: 46, 37, 29 and 24 of 3 processes with 10, 15, 30 and 60 rounds; 26 and
  // 22 of 5 with 10 and 60; 21 of 8 with 20 to 60.
  const auto most = [](int rounds, int processes) {
    return most_missed(rounds, processes, 200, kConfidence);
  };
  CHECK(most(10, 3) == Approx(46).margin(3));
  CHECK(most(15, 3) == Approx(37).margin(2));
  CHECK(most(30, 3) == Approx(29).margin(2));
  CHECK(most(60, 3) == Approx(24).margin(1));
  CHECK(most(10, 5) == Approx(26).margin(2));
  CHECK(most(60, 5) == Approx(22).margin(1));
  CHECK(most(60, 8) == 21);
  CHECK(most(60, 15) == 21);
  CHECK(most(60, 30) == 21);
  CHECK(most(60, 3) == most(60, 3));
  CHECK(most_missed(60, 3, 0, kConfidence) == 0);
}

TEST_CASE("a sound calibration keeps to its bound, and not to that of independent draws") {
  constexpr int kCalibrations = 400;
  CHECK(count_over(10, 3, most_by_chance(200, 0.05), kCalibrations) > kCalibrations / 25);
  CHECK(count_over(10, 3, most_missed(10, 3, 200, kConfidence), kCalibrations) <= 3);
}

TEST_CASE("the whole form on a card records the rounds of the row of 30 processes, however slow") {
  const ClockForm card = clock_form(true, true);
  CHECK(takes_more_rounds(card, 55, 102, false));  // an H100 on a slow host, once
  CHECK(takes_more_rounds(card, 55, 102, true));
  CHECK(takes_more_rounds(card, 55, 280, true));
  CHECK(!takes_more_rounds(card, 60, 110, false));
  CHECK(!takes_more_rounds(card, 60, 1, false));
  CHECK(rounds_problem(card, 60, 110).empty());
  // A bound there is.
  CHECK(!takes_more_rounds(card, 55, 301, false));
  CHECK(rounds_problem(card, 55, 301) ==
        "recording ended after 55 rounds and 301 s (at most 300 s): wanted 60 rounds, so that 30 "
        "processes can be compared");
  CHECK(card.live == 20);
}

TEST_CASE("the short form and a CPU end once the slow-downs are told apart, or with their time") {
  for (const bool cuda : {false, true}) {
    const ClockForm brief = clock_form(false, cuda);
    CHECK(takes_more_rounds(brief, 5, 100, true));
    CHECK(!takes_more_rounds(brief, 10, 1, true));
    CHECK(takes_more_rounds(brief, 10, 1, false));
    CHECK(!takes_more_rounds(brief, 10, 16, false));
    CHECK(!takes_more_rounds(brief, 15, 1, false));
    CHECK(brief.live == 0);
  }
  const ClockForm cpu = clock_form(true, false);
  CHECK(takes_more_rounds(cpu, 25, 200, true));
  CHECK(!takes_more_rounds(cpu, 30, 50, true));
  CHECK(takes_more_rounds(cpu, 55, 99, false));
  CHECK(!takes_more_rounds(cpu, 55, 101, false));
  CHECK(!takes_more_rounds(cpu, 60, 50, false));
}
