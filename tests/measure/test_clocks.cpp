// The rules on what may lie between an engine's clocks: by numbers, and in simulated runs of honest
// engines and of engines whose clocks lie.
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "harness/measure/sample.h"
#include "tests/support/catch2.h"

using namespace mkbench;

namespace {

constexpr double kTokenMs = 0.4, kOverheadMs = 0.15;
constexpr int kRuns = 20, kRepeats = 2, kSamples = 10;

// A host's clock around a decode, whose spread is `sd_us` beside the overhead, and another clock of
// the engine, which shows `share` of the time that the decode took.
struct Clocks {
  double sd_us, share = 1;
  double DecodeTimes::*other = &DecodeTimes::device_ms;
  std::mt19937_64 random{};
  double state_us =
      0;  // what the host's second state adds; it changes its state in 1 of 20 decodes
  bool second = false;
  std::normal_distribution<double> normal{};

  DecodeTimes decode(int tokens) {
    if (state_us > 0 && random() % 20 == 0) second = !second;
    const double took = tokens * kTokenMs;
    const double beside = kOverheadMs + ((second ? state_us : 0) + normal(random) * sd_us) / 1e3;
    DecodeTimes times;
    times.*other = share * took;
    times.host_ms = took + std::max(0.0, beside);
    return times;
  }
};

// The overhead by all decodes of one token so far, and twenty more.
ClockOverhead measure(Clocks& clocks, std::vector<DecodeTimes>& one_token) {
  for (int i = 0; i < kRuns; ++i) one_token.push_back(clocks.decode(1));
  return clock_overhead(one_token, clocks.sd_us / 1e3);
}

// As blocks.cpp takes samples: where one disagrees, the overhead is measured anew and the sample is
// tried again; then all are judged together, and once more with a new overhead. Returns why the
// engine fails, or an empty string.
std::string judge(Clocks& clocks, int tokens, int samples = kSamples) {
  std::vector<DecodeTimes> one_token;
  ClockOverhead overhead = measure(clocks, one_token);
  std::vector<Sample> all;
  for (int i = 0; i < samples; ++i) {
    Sample sample;
    std::string why;
    for (int repeats = 0; repeats <= kRepeats; ++repeats) {
      sample.times = clocks.decode(tokens);
      why = clock_disagreement(sample.times, overhead);
      if (why.empty()) break;
      overhead = measure(clocks, one_token);
    }
    if (!why.empty()) return why;
    all.push_back(sample);
  }
  if (lasting_disagreement(all, overhead).empty()) return {};
  return lasting_disagreement(all, measure(clocks, one_token));
}

int failures(Clocks& clocks, int tokens, int cases, int samples = kSamples) {
  int count = 0;
  for (int i = 0; i < cases; ++i) count += judge(clocks, tokens, samples).empty() ? 0 : 1;
  return count;
}

DecodeTimes times_of(double host_ms, double event_ms, double device_ms = 0) {
  DecodeTimes times;
  times.host_ms = host_ms;
  times.event_ms = event_ms;
  times.device_ms = device_ms;
  return times;
}

constexpr double DecodeTimes::*kOthers[] = {&DecodeTimes::event_ms, &DecodeTimes::device_ms};

}  // namespace

TEST_CASE("two clocks agree within 1 % and four deviations, and one cannot disagree") {
  CHECK(clock_disagreement(times_of(100, 0)).empty());
  CHECK(clock_disagreement(times_of(100, 99)).empty());
  CHECK_THAT(clock_disagreement(times_of(100, 98.9)),
             ContainsText("host 100.000 ms, events 98.900 ms"));
  CHECK_FALSE(clock_disagreement(times_of(98.9, 100)).empty());
  CHECK_FALSE(clock_disagreement(times_of(100, 100, 90)).empty());
  CHECK(clock_disagreement(times_of(1, 1, -0.001)) == "clock device reads -0.001 ms");
  CHECK_FALSE(clock_disagreement(times_of(1, 1, std::nan(""))).empty());

  const ClockOverhead overhead{
      .runs = 20, .event_ms = 0.1, .event_sd_ms = 0.01, .device_ms = 0.2, .device_sd_ms = 0.01};
  // 1 ms by the device: 0.2 ms less than the host's, give or take 0.01 + 4 x 0.01.
  CHECK(clock_disagreement(times_of(1.2, 0, 1), overhead).empty());
  CHECK(clock_disagreement(times_of(1.251, 0, 1), overhead).empty());
  CHECK_FALSE(clock_disagreement(times_of(1.253, 0, 1), overhead).empty());
  CHECK(clock_disagreement(times_of(1.149, 0, 1), overhead).empty());
  CHECK_FALSE(clock_disagreement(times_of(1.147, 0, 1), overhead).empty());
  CHECK_FALSE(clock_disagreement(times_of(1.02, 0, 1)).empty());  // without any overhead
}

TEST_CASE("the overhead is that of most runs, and its deviation at least that of an empty call") {
  std::vector<DecodeTimes> runs;
  for (int i = 0; i < 20; ++i) runs.push_back(times_of(1.1 + 0.01 * (i % 3), 1.0));
  runs[0].host_ms = 50;  // the system suspended the process
  const ClockOverhead alone = clock_overhead(runs);
  CHECK(alone.runs == 20);
  CHECK(alone.event_ms == Approx(0.110625));
  CHECK(alone.event_sd_ms == Approx(0.014826));
  CHECK((alone.device_ms == 0 && alone.device_sd_ms == 0));
  CHECK(clock_overhead(runs, 0.005).event_sd_ms == alone.event_sd_ms);
  CHECK(clock_overhead(runs, 0.03).event_sd_ms == Approx(0.03));
  CHECK(clock_overhead(runs, 0.03).device_sd_ms == 0);
  // A clock that shows more than the one around it has no overhead.
  for (DecodeTimes& run : runs) run.event_ms = 2 * run.host_ms;
  CHECK(clock_overhead(runs).event_ms == 0);
}

TEST_CASE("honest engines pass at 1, 8, 64 and 128 tokens, whatever the spread of their calls") {
  int failed = 0, cases = 0;
  uint64_t seed = 1;
  for (const auto other : kOthers) {
    for (const int tokens : {1, 8, 64, 128}) {
      for (const double sd_us : {5.0, 20.0, 50.0, 100.0, 200.0}) {
        Clocks clocks{.sd_us = sd_us, .other = other, .random = std::mt19937_64(seed++)};
        failed += failures(clocks, tokens, 100);
        cases += 100;
      }
    }
  }
  INFO(failed << " of " << cases << " honest cases failed");
  CHECK(failed == 0);
}

TEST_CASE("honest engines pass on a host whose overhead changes between two states") {
  int failed = 0, cases = 0;
  uint64_t seed = 1000;
  for (const double state_us : {20.0, 60.0, 200.0}) {
    for (const int tokens : {1, 8, 64, 128}) {
      Clocks clocks{.sd_us = 5, .random = std::mt19937_64(seed++), .state_us = state_us};
      const int some = failures(clocks, tokens, 200, 30);
      if (some > 0) UNSCOPED_INFO(some << " at " << state_us << " us, n " << tokens);
      failed += some;
      cases += 200;
    }
  }
  INFO(failed << " of " << cases << " honest cases failed");
  CHECK(failed == 0);
}

TEST_CASE("a clock that lies by 3 % is caught wherever that exceeds five times the spread") {
  uint64_t seed = 100;
  for (const auto other : kOthers) {
    for (const double share : {0.97, 1.03}) {
      // Not at one token: the runs that give the overhead are as long, and tell the same lie.
      for (const int tokens : {8, 64, 128}) {
        const double lie_us = 0.03 * tokens * kTokenMs * 1e3;
        for (const double sd_us : {5.0, 20.0, 50.0, 100.0, 200.0, lie_us / 5.3}) {
          if (lie_us < 5.2 * sd_us) continue;
          Clocks clocks{
              .sd_us = sd_us, .share = share, .other = other, .random = std::mt19937_64(seed++)};
          CAPTURE(tokens, sd_us, share);
          CHECK(failures(clocks, tokens, 50, 30) == 50);
        }
      }
    }
  }
}

TEST_CASE("a small lie shows in all samples together where none shows it alone") {
  Clocks clocks{.sd_us = 0.03 * 128 * kTokenMs * 1e3 / 5.3, .share = 0.97};
  int together = 0, alone = 0;
  for (int i = 0; i < 100; ++i) {
    const std::string why = judge(clocks, 128);
    const bool mean = why.starts_with("clocks disagree in all samples: host and device differ by");
    ++(mean ? together : alone);
    CHECK_FALSE(why.empty());
  }
  CHECK(together > alone);
  // One sample has no spread of its own.
  Sample one;
  one.times = times_of(100, 0, 97);
  const ClockOverhead exact{.runs = 20, .device_ms = 0.1, .device_sd_ms = 0.01};
  CHECK_FALSE(lasting_disagreement(std::vector{one}, exact).empty());
  one.times.device_ms = 99.9;
  CHECK(lasting_disagreement(std::vector{one}, exact).empty());
  // An overhead that many runs gave counts as that of the first 20: the mean of 20 samples of 20 ms
  // may lie 0.2 ms plus four errors of 0.0315 ms beside it.
  const ClockOverhead lasting{.runs = 2000, .device_ms = 0.1, .device_sd_ms = 0.1};
  for (const auto& [beside, agrees] : {std::pair(0.31, true), std::pair(0.34, false)}) {
    one.times = times_of(20.1 + beside, 0, 20);
    CHECK(lasting_disagreement(std::vector(20, one), lasting).empty() == agrees);
  }
  // Without a measured overhead there is nothing to compare the mean with.
  one.times = times_of(1, 0, 0.5);
  CHECK(lasting_disagreement(std::vector{one}, ClockOverhead{}).empty());
}
