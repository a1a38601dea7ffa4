// The calibration of the clock: simulated processes with a known spread, judged by the comparison of
// reports and by comparisons that are wrong.
#include <algorithm>
#include <cmath>
#include <random>

#include "harness/measure/calibration.h"
#include "references/base/error.h"
#include "tests/support/catch2.h"
#include "tests/support/recorded_processes.h"

using namespace mkbench;

namespace {

constexpr double kConfidence = 0.95;

// Processes whose mean differs by `process_sd` from that of others, and blocks by `block_sd`, both
// relative; a slow library takes its share longer, times `truth`.
std::vector<RecordedRound> simulate(int rounds, double process_sd, double block_sd,
                                    double truth = 1, uint64_t seed = 11) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  const auto process = [&](double factor) {
    constexpr int kBlocks = 20;
    const double mean = 5 * factor * std::exp(process_sd * normal(random));
    std::vector<double> times;
    for (int b = 0; b < kBlocks; ++b) times.push_back(mean * std::exp(block_sd * normal(random)));
    return times;
  };
  std::vector<RecordedRound> result(static_cast<size_t>(rounds));
  for (RecordedRound& round : result) {
    for (const char* copy : kSoundCopies) round[copy] = process(1);
    for (const SlowLibrary& slow : kSlowLibraries)
      round[slow.name] = process((1 + slow.share) * truth);
  }
  return result;
}

// One library of each round lies in a place that is slower by `step`: one copy or the other, and each slow
// library in every second round.
std::vector<RecordedRound> unequal_places(int rounds, double step, double process_sd) {
  std::vector<RecordedRound> result = simulate(rounds, process_sd, 0.002);
  std::mt19937_64 random(5);
  const auto heads = [&] { return (random() >> 20) % 2 == 1; };
  for (RecordedRound& round : result) {
    std::vector<const char*> slower = {kSoundCopies[heads() ? 1 : 0]};
    for (const SlowLibrary& slow : kSlowLibraries) {
      if (heads()) slower.push_back(slow.name);
    }
    for (const char* name : slower) {
      for (double& ms : round[name]) ms *= 1 + step;
    }
  }
  return result;
}

// Takes all blocks as blocks of one process, as if processes did not differ.
PairedSpeedup compare_blocks(const std::vector<PairedBlocks>& processes, double confidence) {
  PairedBlocks all;
  for (const PairedBlocks& one : processes) {
    all.baseline_ms.insert(all.baseline_ms.end(), one.baseline_ms.begin(), one.baseline_ms.end());
    all.candidate_ms.insert(all.candidate_ms.end(), one.candidate_ms.begin(),
                            one.candidate_ms.end());
  }
  return compare_processes({all}, confidence);
}

PairedSpeedup halved(PairedSpeedup found) {
  if (found.ci) {
    found.ci->low = std::sqrt(found.ci->low * found.speedup);
    found.ci->high = std::sqrt(found.ci->high * found.speedup);
  }
  return found;
}

bool any_holds(const std::vector<std::string>& texts, const std::string& part) {
  return std::any_of(texts.begin(), texts.end(),
                     [&](const std::string& text) { return text.find(part) != std::string::npos; });
}

}  // namespace

TEST_CASE("the honest comparison of processes that differ is accepted") {
  const Calibration found = calibrate(simulate(60, 0.007, 0.01), compare_processes, kConfidence, 1);
  CHECK(calibration_problems(found) == std::vector<std::string>{});
  CHECK(found.processes == 120);
  CHECK(found.blocks == 20);
  REQUIRE(found.rows.size() == 5);
  CHECK(found.rows[1].processes == 5);
  CHECK(found.rows.back().processes == 30);
  for (const CalibrationRow& row : found.rows) {
    CHECK(row.splits == kCalibrationSplits);
    CHECK(row.most_allowed == most_missed(60, row.processes, row.splits, kConfidence));
    CHECK(row.margin == Approx(std::max(0.005, 1.5 * row.half_width)));
    // The spread of a log ratio of two processes' means, and the t interval of so many of them.
    const double sd = std::sqrt(2 * (0.007 * 0.007 + 0.01 * 0.01 / 20));
    const double half = t_quantile(kConfidence, row.processes - 1) * sd / std::sqrt(row.processes);
    CHECK(row.half_width == Approx(half).epsilon(0.25));
  }
  CHECK(row_of_processes(found, 7)->processes == 5);
  CHECK(row_of_processes(found, 1)->processes == 3);
  CHECK(row_of_processes(found, 1000)->processes == 30);
  CHECK(row_of_processes({}, 5) == nullptr);
  // All rows are trusted: no number of processes is too few.
  CHECK(least_trusted(found) == 3);
  CHECK((margin_of(found, 2, "").least_processes == 0 && margin_of(found, 2, "").too_few == ""));
}

TEST_CASE("a comparison that sees differences where there are none is refused") {
  const std::vector<RecordedRound> rounds = simulate(30, 0.007, 0.01);
  for (const CompareProcesses& eager :
       {CompareProcesses(compare_blocks),
        CompareProcesses([](const std::vector<PairedBlocks>&processes, double confidence) {
          return halved(compare_processes(processes, confidence));
        })}) {
    const Calibration found = calibrate(rounds, eager, kConfidence, 1);
    CHECK(any_holds(calibration_problems(found), "intervals do not hold 1, alpha 0.05 allows 21"));
    CHECK(
        any_holds(calibration_problems(found), "intervals do not hold the ratio over all rounds"));
    CHECK(any_holds(calibration_problems(found), "A/A with 5 processes"));
  }
}

TEST_CASE("what alpha allows is allowed to the last interval, verdict and share") {
  const Calibration found =
      calibrate(simulate(30, 0.002, 0.004), compare_processes, kConfidence, 1);
  for (int CopiesRow::*count : {&CopiesRow::excluding_one, &CopiesRow::faster_or_slower}) {
    CopiesRow row = found.rows[1];
    row.*count = row.most_allowed;
    CHECK(row_problem(row, found.alpha) == "");
    ++(row.*count);
    CHECK(row_problem(row, found.alpha) != "");
  }
  for (double Power::*share : {&Power::seen, &Power::rescaled}) {
    for (const double seen : {kWantedPower, kWantedPower - 0.005}) {
      Calibration other = found;
      for (CalibrationRow& row : other.rows) row.power[0].*share = seen;
      CHECK((processes_that_see(other, 0.01) > 0) == (seen == kWantedPower));
    }
  }
  for (const int more : {0, 1}) {
    Calibration missing = found;
    Power& power = missing.rows[1].power[0];
    power.missed = power.most_missed + more;
    CHECK(any_holds(calibration_problems(missing), "1 % with 5 processes: ") == (more > 0));
    missing.rows[0].power[0].missed = 200;  // three processes may be too few
    CHECK(any_holds(calibration_problems(missing), "1 % with 3 processes: ") == false);
  }
  Calibration whole = found;
  for (const auto& [beside, problems] : {std::pair(0.9, 0), std::pair(1.1, 1)}) {
    for (const double wanted : {1.01 - beside * kShareTolerance, 1.02 + beside * kShareTolerance}) {
      whole.whole = {{"slow_1", wanted, 1.015, Interval{1.01, 1.02}}};
      CHECK(std::ssize(calibration_problems(whole)) == problems);
    }
  }
  whole.whole[0].ci.reset();
  CHECK(any_holds(calibration_problems(whole),
                  "slow_1: its ratio to the sound library has no interval"));
}

TEST_CASE("three processes are too few where the copies of a round lie in unequal places") {
  const Calibration found =
      calibrate(unequal_places(60, 0.015, 0.001), compare_processes, kConfidence, 1);
  REQUIRE(found.rows.size() == 5);
  // Three ratios of one sign, in a quarter of the draws, have a small scatter around a wrong mean.
  CHECK(found.rows[0].excluding_one > 30);
  CHECK(row_problem(found.rows[0], found.alpha) != "");
  for (size_t i = 1; i < found.rows.size(); ++i) {
    INFO(found.rows[i].processes);
    CHECK(row_problem(found.rows[i], found.alpha) == "");
  }
  CHECK(calibration_problems(found) == std::vector<std::string>{});
  CHECK(least_trusted(found) == 5);

  for (const int processes : {1, 2, 3, 4, 5, 30}) {
    const SpeedMargin margin = margin_of(found, processes, "here");
    CHECK(margin.least_processes == 5);
    CHECK(margin.too_few == "too few processes for a verdict on this machine: " +
                                row_problem(found.rows[0], found.alpha) +
                                "; --processes 5 or more");
  }
  CHECK(margin_of(found, 30, "here").half_width == found.rows[4].half_width);
  CHECK(margin_of(found, 30, "here").source == "here");

  // From the usual number of processes on, each row counts.
  Calibration usual = found;
  usual.rows[1].excluding_one = 60;
  CHECK(any_holds(calibration_problems(usual), "A/A with 5 processes: 60 of 200"));
  CHECK(least_trusted(usual) == 8);
  CHECK(margin_of(usual, 5, "").least_processes == 8);
  // So does the only row of few rounds.
  Calibration few = found;
  few.rows.resize(1);
  CHECK(any_holds(calibration_problems(few), "A/A with 3 processes"));
  CHECK(least_trusted(few) == 0);
  CHECK(margin_of(few, 3, "").least_processes == 4);
}

TEST_CASE("a clock that does not show the share of the slow-down is refused") {
  // An engine that is slower by 1 % and shows 4 %.
  const Calibration found =
      calibrate(simulate(30, 0.002, 0.005, 1.03), compare_processes, kConfidence, 1);
  const std::vector<std::string> problems = calibration_problems(found);
  CHECK(problems.size() == 3);
  CHECK(any_holds(problems, "slow_1: takes 1.0"));
  CHECK(any_holds(problems, "wanted 1.01"));
}

TEST_CASE("a copy that is slower by itself is refused") {
  std::vector<RecordedRound> rounds = simulate(30, 0.002, 0.005);
  for (RecordedRound& round : rounds) {
    for (double& ms : round[kSoundCopies[1]]) ms *= 1.01;
  }
  const Calibration found = calibrate(rounds, compare_processes, kConfidence, 1);
  CHECK(any_holds(calibration_problems(found), "sound_copy: takes 1.0"));
}

TEST_CASE("power is that of the t test") {
  // The difference of 8 processes lies 3 of its standard errors from 0: a noncentral t distribution
  // with 7 degrees of freedom puts 0.731 beyond its 97.5 % point.
  const double shift = std::log(1.01);
  const double sd = shift * std::sqrt(8.0) / 3 / std::sqrt(2.0);
  double seen = 0, rescaled = 0;
  constexpr int kPools = 6;
  for (uint64_t pool = 0; pool < kPools; ++pool) {
    const Calibration found =
        calibrate(simulate(60, sd, 0, 1, 100 + pool), compare_processes, kConfidence, pool);
    REQUIRE(found.rows[2].processes == 8);
    REQUIRE(found.rows[2].power[0].share == 0.01);
    seen += found.rows[2].power[0].seen / kPools;
    rescaled += found.rows[2].power[0].rescaled / kPools;
  }
  CHECK(seen == Approx(0.731).margin(0.1));
  CHECK(rescaled == Approx(0.731).margin(0.1));
}

TEST_CASE("the number of processes that see a share") {
  const Calibration quiet =
      calibrate(simulate(30, 0.002, 0.004), compare_processes, kConfidence, 1);
  CHECK(processes_that_see(quiet, 0.01) == 5);
  CHECK(processes_that_see(quiet, 0.05) == 3);
  CHECK(processes_that_see(quiet, 0.03) == 0);  // not recorded
  const Calibration noisy = calibrate(simulate(30, 0.05, 0.01), compare_processes, kConfidence, 1);
  CHECK(processes_that_see(noisy, 0.01) == 0);
  CHECK(calibration_problems(noisy) == std::vector<std::string>{});

  // A row that is not trusted sees nothing.
  Calibration doubted = quiet;
  doubted.rows[0].excluding_one = 60;
  CHECK(processes_that_see(doubted, 0.05) == 5);
}

// Draws five of the card's processes 200 times and computes the interval of their speed-ups. Returns
// how many of these intervals do not hold `wanted`, and how many lie below 1. The baseline is always
// `sound`, which was the first engine of those runs.
std::pair<int, int> missed_and_slower(double testing::SpeedupsOfProcess::*of, double wanted) {
  int missed = 0, slower = 0;
  const int all = static_cast<int>(testing::kSpeedupsOnCard.size());
  for (const std::vector<int>& order : block_orders(all, kCalibrationSplits, true, 20261129)) {
    std::vector<PairedBlocks> pairs;
    for (size_t i = 0; i < 5; ++i)
      pairs.push_back({{testing::kSpeedupsOnCard.at(static_cast<size_t>(order[i])).*of}, {1}});
    const Interval ci = compare_processes(pairs, kConfidence).ci.value();
    missed += wanted < ci.low || wanted > ci.high;
    slower += ci.high < 1;
  }
  return {missed, slower};
}

TEST_CASE("intervals of processes in drawn orders hold two copies' 1, and a planted 1 %") {
  const int allowed = most_missed(static_cast<int>(testing::kSpeedupsOnCard.size()), 5,
                                  kCalibrationSplits, kConfidence);
  CHECK(missed_and_slower(&testing::SpeedupsOfProcess::sound_copy, 1).first <= allowed);
  const auto [missed, slower] = missed_and_slower(&testing::SpeedupsOfProcess::slow_1, 1 / 1.01);
  CHECK(missed <= allowed);
  CHECK(slower == kCalibrationSplits);
  // Two copies whose second one were 0.3 % slower, as engines at the end of a list once were.
  CHECK(missed_and_slower(&testing::SpeedupsOfProcess::sound_copy, 1.003).first > allowed);
}

TEST_CASE("a slow library may be in some of the rounds") {
  std::vector<RecordedRound> rounds = simulate(30, 0.002, 0.004);
  for (size_t i = 0; i < rounds.size(); ++i) {
    if (i % 4 != 0) rounds[i].erase("slow_5");
  }
  const Calibration found = calibrate(rounds, compare_processes, kConfidence, 1);
  CHECK(calibration_problems(found) == std::vector<std::string>{});
  REQUIRE(found.rows.back().processes == 15);
  CHECK(found.rows.back().power.size() == 2);  // 8 rounds hold it
  CHECK(found.rows[2].power.size() == 3);
  CHECK(processes_that_see(found, 0.05) == 3);
}

TEST_CASE("splits are those of the seed") {
  const std::vector<RecordedRound> rounds = simulate(12, 0.007, 0.01);
  const auto widths = [&](uint64_t seed) {
    std::vector<double> result;
    for (const CalibrationRow& row : calibrate(rounds, compare_processes, kConfidence, seed).rows)
      result.push_back(row.half_width);
    return result;
  };
  CHECK(widths(1) == widths(1));
  CHECK(widths(1) != widths(2));
}

TEST_CASE("rounds that do not fit are refused by name") {
  std::vector<RecordedRound> rounds = simulate(6, 0.002, 0.005);
  CHECK_THROWS_WITH(calibrate({rounds.begin(), rounds.begin() + 3}, compare_processes, 0.95, 1),
                    "calibration: found 3 rounds, wanted at least 4");
  std::vector<RecordedRound> few = rounds;
  for (size_t i = 0; i < 3; ++i) few[i].erase("slow_5");
  CHECK_THROWS_WITH(calibrate(few, compare_processes, 0.95, 1),
                    "calibration: found 3 rounds with slow_5, wanted at least 4");
  rounds[4]["slow_2"].pop_back();
  CHECK_THROWS_WITH(calibrate(rounds, compare_processes, 0.95, 1),
                    "calibration: found 19 blocks of slow_2 in round 4, wanted 20");
  rounds[2].erase("sound_copy");
  CHECK_THROWS_WITH(calibrate(rounds, compare_processes, 0.95, 1),
                    "calibration: found 0 blocks of sound_copy in round 2, wanted 20");
}
