// The judge of the faults of timing sees every way in which a run can differ from its table, and the
// table covers T1-T15.
#include <fstream>
#include <iterator>
#include <set>
#include <string>

#include "harness/selftest/timing_faults.h"
#include "references/snapshot.h"
#include "tests/support/catch2.h"

using namespace mkbench;

namespace {

TimingOutcome passed() {
  return {.verdict = Verdict::kPass,
          .reasons = {},
          .samples = 8,
          .fastest_ms = 2,
          .interval = Interval{2.1, 2.3}};
}

TimingOutcome failed() {
  return {.verdict = Verdict::kFailToken, .reasons = {"block 0", "late id 7"}, .samples = 1};
}

}  // namespace

TEST_CASE("an engine that ends as its row says is no surprise") {
  CHECK(surprise({"x", {{Verdict::kPass, ""}}}, passed()) == "");
  CHECK(surprise({"x", {{Verdict::kFailToken, "late id"}}}, failed()) == "");
}

TEST_CASE("another verdict, another reason and times that do not fit are surprises") {
  CHECK(holds(surprise({"x", {{Verdict::kFailToken, ""}}}, passed()),
              "found PASS '', wanted FAIL_TOKEN"));
  CHECK(holds(surprise({"x", {{Verdict::kIntegrity, "late id"}}}, failed()),
              "found FAIL_TOKEN 'block 0; late id 7', wanted INTEGRITY"));
  CHECK(holds(surprise({"x", {{Verdict::kFailToken, "receipt"}}}, failed()), "wanted FAIL_TOKEN"));
  CHECK(holds(surprise({"x", {{Verdict::kFailToken, ""}}}, failed()), "wanted FAIL_TOKEN"));
  const TimingEngine either = {"x",
                               {{Verdict::kIntegrity, "state"}, {Verdict::kFailToken, "late id"}}};
  CHECK(surprise(either, failed()) == "");
  CHECK(holds(surprise(either, passed()), "wanted INTEGRITY 'state' or FAIL_TOKEN 'late id'"));
  TimingOutcome outcome = passed();
  outcome.fastest_ms = 0;
  CHECK(holds(surprise({"x", {{Verdict::kPass, ""}}}, outcome), "times: none"));
  outcome = failed();
  outcome.fastest_ms = 1;
  CHECK(holds(surprise({"x", {{Verdict::kFailToken, "late id"}}}, outcome), "wanted none"));
}

TEST_CASE(
    "a sound engine that fails or loses samples is a failed control, a scattered time is not") {
  CHECK(control_surprise(passed(), 8) == "");
  CHECK(holds(control_surprise(failed(), 1), "wanted PASS"));
  CHECK(names_of({{Verdict::kPass, ""}, {Verdict::kHang, "x"}, {Verdict::kPass, "y"}}) ==
        "PASS or HANG");
  CHECK(holds(control_surprise(passed(), 9), "samples: found 8, wanted 9"));
  TimingOutcome outcome = passed();
  outcome.interval.reset();
  CHECK(control_surprise(outcome, 8) == "");  // a machine that stalls takes an interval away
}

TEST_CASE("a ratio of times must lie in its band") {
  const TimingBand band = {TimesCompared::kToSound, 0.5, 1.5};
  TimingOutcome outcome = passed();
  CHECK(times_surprise(band, outcome, passed()) == "");
  for (const double ms : {0.9, 3.1}) {
    outcome.fastest_ms = ms;
    CHECK(holds(times_surprise(band, outcome, passed()), "wanted 0.5 to 1.5"));
    CHECK(times_surprise({}, outcome, passed()) == "");
  }
  CHECK(holds(times_surprise(band, passed(), failed()), "of 0 ms"));
}

TEST_CASE("a sound engine beside another one is no slower than without it") {
  const TimingBand band = {TimesCompared::kSoundAlone, 0, 1.6};
  TimingOutcome beside = passed();
  CHECK(times_surprise(band, beside, passed()) == "");
  beside.interval = Interval{1.5, 1.6};  // faster: the machine was busy before
  CHECK(times_surprise(band, beside, passed()) == "");
  beside.interval = Interval{2.32, 2.5};  // 0.9 % above the other interval
  CHECK(times_surprise(band, beside, passed()) == "");
  beside.interval = Interval{2.33, 2.5};
  CHECK(times_surprise(band, beside, passed()) ==
        "times: the sound engine took 2.33 to 2.5 ms a token beside the library, 2.1 to 2.3 ms "
        "alone: wanted no slower");
  beside.fastest_ms = 3.3;
  CHECK(holds(times_surprise(band, beside, passed()), "wanted 0 to 1.6"));
  beside = passed();
  beside.interval.reset();
  CHECK(holds(times_surprise(band, beside, passed()), "no interval"));
}

TEST_CASE(
    "an engine that is uneven shows outliers and drift, and an interval that covers its mean") {
  const TimingBand band = {TimesCompared::kUneven};
  // 30 ms in every 7th block of 31 tokens are 0.138 ms a token.
  TimingOutcome uneven = passed();
  uneven.samples = 28;
  uneven.interval = Interval{2.0, 2.8};
  uneven.outliers = 4;
  uneven.drift = true;
  CHECK(times_surprise(band, uneven, passed()) == "");
  uneven.outliers = 3;
  CHECK(times_surprise(band, uneven, passed()) == "outliers: found 3, wanted at least 4");
  uneven.outliers = 4;
  uneven.drift = false;
  CHECK(holds(times_surprise(band, uneven, passed()), "lag-1 correlation and trend"));
  uneven.drift = true;
  for (const Interval& misses : {Interval{2.0, 2.23}, Interval{2.45, 2.8}}) {
    uneven.interval = misses;
    CHECK(holds(times_surprise(band, uneven, passed()),
                "does not overlap the wanted one, 2.238 to 2.438"));
  }
  uneven.interval.reset();
  CHECK(holds(times_surprise(band, uneven, passed()), "no interval"));
}

TEST_CASE("a copy is neither faster nor slower than the sound engine") {
  const TimingBand band = {TimesCompared::kSame};
  TimingOutcome copy = passed();
  CHECK(holds(times_surprise(band, copy, passed()), "found no comparison"));
  for (const auto& [verdict, right] : {std::pair("SAME", true), std::pair("INCONCLUSIVE", true),
                                       std::pair("FASTER", false), std::pair("SLOWER", false)}) {
    copy.against_sound = verdict;
    CHECK((times_surprise(band, copy, passed()) == "") == right);
  }
}

TEST_CASE("deferred work must stand in the time to first token, block by block") {
  const TimingBand band = {TimesCompared::kDeferred, 0.95, 1.05};
  const auto outcome = [](double share, std::vector<double> ms) {
    TimingOutcome o = passed();
    o.prefill_share = share;
    for (size_t i = 0; i < ms.size(); ++i) o.block_ms[static_cast<int>(i)] = ms[i];
    return o;
  };
  const TimingOutcome sound = outcome(0.99, {10, 20, 10, 30, 10, 10});
  // Blocks that other programs slow down for both do no harm, nor does one slow block of one.
  CHECK(times_surprise(band, outcome(0, {10, 20, 10, 31, 10, 10.2}), sound) == "");
  CHECK(times_surprise(band, outcome(0, {9, 19, 9.7, 29, 9.7, 9.7}), sound) == "");
  CHECK(holds(times_surprise(band, outcome(0, {8, 16, 8, 24, 9, 9.4}), sound),
              "times to first token: 0.800 to 0.940 of the sound engine's, block by block, wanted "
              "within 0.95 to 1.05"));
  CHECK(holds(times_surprise(band, outcome(0, {11, 22, 11, 33, 11, 12}), sound), "1.100 to 1.200"));
  CHECK(holds(times_surprise(band, outcome(0, {0.1, 0.1, 0.1, 0.1, 0.1, 0.1}), sound), "wanted"));
  // An interval that holds everything shows nothing.
  CHECK(holds(times_surprise(band, outcome(0, {1, 40, 10, 30, 10, 10}), sound),
              "wanted ends within a factor of 1.5"));
  CHECK(holds(times_surprise(band, outcome(0, {10, 20, 10, 30, 10}), sound),
              "5 blocks of both give no interval"));
  // A library that does its prefill in prefill() is no deferred one, and no control defers.
  CHECK(holds(times_surprise(band, outcome(0.99, {10, 20, 10, 30, 10, 10}), sound),
              "prefill: 0.99 of the time to first token"));
  CHECK(holds(times_surprise(band, outcome(0, {10, 20, 10, 30, 10, 10}),
                             outcome(0, {10, 20, 10, 30, 10, 10})),
              "wanted at most 0.1 and at least 0.5"));
}

TEST_CASE("the caution of an engine that is quicker where nobody looks must be there, or not") {
  TimingOutcome named = passed();
  named.caution = "quicker where nobody looks: 1 ms";
  CHECK(times_surprise({TimesCompared::kUnseen}, named, passed()) == "");
  CHECK(times_surprise({TimesCompared::kSeen}, passed(), named) == "");
  CHECK(holds(times_surprise({TimesCompared::kUnseen}, passed(), named), "caution: none, wanted"));
  CHECK(holds(times_surprise({TimesCompared::kSeen}, named, passed()),
              "found 'quicker where nobody looks: 1 ms', wanted none"));
}

TEST_CASE("an outcome holds what the report shows") {
  EngineReport engine;
  engine.observed.caution = "quicker";
  CHECK(timing_outcome(engine).caution == "quicker");
  engine.verdict = Verdict::kPass;
  engine.samples.resize(3);
  engine.ms_per_tok.emplace();
  engine.ms_per_tok->min = 2.5;
  engine.ms_per_tok->ci = Interval{2, 3};
  const TimingOutcome outcome = timing_outcome(engine);
  CHECK(outcome.verdict == Verdict::kPass);
  CHECK(outcome.samples == 3);
  CHECK(outcome.fastest_ms == 2.5);
  REQUIRE(outcome.interval);
  CHECK(outcome.interval->high == 3);
  CHECK(outcome.outliers == 0);
  CHECK(!outcome.drift);
  CHECK(outcome.block_ms.empty());  // no sample is valid
  CHECK(outcome.prefill_share == 0);
  for (int i = 0; i < 3; ++i) {
    Sample& sample = engine.samples[static_cast<size_t>(i)];
    sample.valid = i != 1;
    sample.block = 5 + i;
    sample.tokens = 2;
    sample.times.host_ms = 8 + 2 * i;
    sample.prefill_ms = 2 + i;
  }
  CHECK(timing_outcome(engine).block_ms == std::map<int, double>{{5, 4.0}, {7, 6.0}});
  CHECK(timing_outcome(engine).prefill_share == Approx((0.25 + 4.0 / 12) / 2));
  engine.ms_per_tok->outliers = 4;
  engine.ms_per_tok->lag1 = 0.1;
  CHECK(timing_outcome(engine).outliers == 4);
  CHECK(!timing_outcome(engine).drift);
  engine.ms_per_tok->slope = 0;
  CHECK(timing_outcome(engine).drift);
  engine.ms_per_tok.reset();
  CHECK(timing_outcome(engine).fastest_ms == 0);
}

TEST_CASE("the table covers T1 to T15, and each of its libraries is one of tests/plugins") {
  std::set<std::string_view> ids;
  const std::string folder = data_dir().parent_path().parent_path().string() + "/tests/plugins/";
  std::string sources;
  for (const char* name : {"timing_faults.h", "timing_faults.cpp", "timing_faults.cu"}) {
    std::ifstream in(folder + name);
    sources.append(std::istreambuf_iterator<char>(in), {});
  }
  for (const TimingFault& fault : timing_faults()) {
    INFO(fault.id << ": " << fault.what);
    ids.insert(fault.id);
    CHECK((fault.cpu || fault.cuda));
    CHECK(timing_run(fault.run).run == fault.run);
    for (const TimingEngine& engine : fault.engines) {
      if (engine.library.starts_with("../left_")) continue;  // left_behind.cu
      CHECK(holds(sources, "{\"" + std::string(engine.library) + "\""));
    }
  }
  CHECK(ids.size() == 15);
}
