// When a forecast is said again, by a clock that the test sets.
#include "harness/flow/foretold.h"
#include "tests/support/case_bench.h"

namespace mkbench::testing {
namespace {

constexpr char kMine[] = "mine.so";  // whose pace is not measured beforehand

// Every token of eager and of its runs takes a millisecond. Four prompts of twelve steps.
void prepare(Bench& bench) {
  bench.job.engines[1].name = bench.job.engines[1].asked = kMine;
  bench.job.n_gen = 16;
  bench.job.blocks = bench.job.max_blocks = 100;
  bench.job.processes = 4;
  for (int i = 0; i < 3; ++i) bench.references[0].prompts.push_back(bench.references[0].prompts[0]);
  for (const char* name : {"eager", "eager-fp32", "eager-head-fp32"}) {
    bench.scripts[name].rule = [&bench](const std::vector<int32_t>& ids) {
      bench.pass_ms(1);
      return scripted_token(ids.back(), static_cast<int>(ids.size()) - 1, kVocab);
    };
  }
}

Forecaster measured(Bench& bench) {
  Forecaster forecaster(300);
  forecaster.measure(bench.job, bench.services, false);
  return forecaster;
}

TEST_CASE("the forecast of a case with a library is said again, and then holds") {
  Bench bench;
  prepare(bench);
  bench.scripts[kMine].rule = [&, warm = false](const std::vector<int32_t>& ids) mutable {
    bench.pass_ms(std::exchange(warm, true) ? 8 : 4000);  // the first token compiles
    return scripted_token(ids.back(), static_cast<int>(ids.size()) - 1, kVocab);
  };
  bench.services.make_engine = [&, make = bench.services.make_engine](const auto& request,
                                                                      const auto& weights) {
    bench.pass_ms(request.name == kMine ? 2000 : 0);
    return make(request, weights);
  };
  Forecaster forecaster = measured(bench);
  const double said_s = forecaster.forecast(bench.job).seconds(), begin = bench.now_s;
  Foretold foretold(forecaster, [&] { return bench.now_s; });
  foretold.say({bench.job}, said_s, 0);
  std::vector<std::string> lines;
  EventSink sink([&](const CaseEvent& event) {
    if (std::string line = foretold.take(bench.job, event); !line.empty()) lines.push_back(line);
  });
  run_case(bench.job, bench.services, sink);
  const double took_s = bench.now_s - begin;
  INFO(said_s << " s said, " << took_s << " s taken");
  CHECK(took_s > 3 * said_s);
  CHECK(foretold.seconds() == Approx(took_s).epsilon(0.3));
  REQUIRE(lines.size() == 1);
  CHECK(holds(lines[0], "forecast: the run was foretold " + duration_text(said_s) + ", now "));
  CHECK(holds(lines[0], ": mine.so takes 2.0 s to open and 16 ms for each judged step"));
}

// What take() returns at the library's first judged steps that count, of 60 ms each after an opening of
// 500 ms, and of 70 ms and 6 s afterwards. `besides_s`: said of the run besides its case.
std::vector<std::string> said_of(double besides_s) {
  Bench bench;
  prepare(bench);
  Forecaster forecaster = measured(bench);
  double now_s = 100;
  Foretold foretold(forecaster, [&] { return now_s; });
  foretold.say({bench.job}, forecaster.forecast(bench.job).seconds() + besides_s, 0);
  const auto take = [&](double after_s, const CaseEvent& event) {
    now_s += after_s;
    return foretold.take(bench.job, event);
  };
  const auto judged = [](int done) {
    return StageProgress{.stage = "parity", .engine = kMine, .done = done, .total = 48};
  };
  CHECK(take(0, StageProgress{.stage = "upload", .engine = kMine}).empty());
  CHECK(take(0.5, EngineMade{kMine, {}}).empty());
  CHECK(take(7, StageProgress{.stage = "parity", .engine = kMine}).empty());
  CHECK(take(9, judged(12)).empty());  // which may have compiled
  std::vector<std::string> said = {take(12 * 0.06, judged(24))};
  CHECK(take(0.3, judged(24)).empty());  // the engine has moved
  said.push_back(take(12 * 0.07 - 0.3, judged(36)));
  said.push_back(take(12 * 6, judged(12)));  // of the next reference
  return said;
}

TEST_CASE("a forecast is said again from half as much again on") {
  // Four processes open the library beside the judged one; 48 judged steps, and what is timed.
  Bench bench;
  prepare(bench);
  Forecaster forecaster = measured(bench);
  const double before_s = forecaster.forecast(bench.job).seconds();
  const double judging_s = forecaster.forecast(bench.job).judging_s;
  CHECK_FALSE(forecaster.learn(bench.job, kMine, {.open_s = 0.5}));
  CHECK_FALSE(forecaster.learn(bench.job, "eager", {.judged_s = 0.06}));
  CHECK_FALSE(forecaster.learn(bench.job, "other.so", {.judged_s = 0.06}));
  REQUIRE(forecaster.learn(bench.job, kMine, {.open_s = 0.5, .judged_s = 0.06, .least_s = 0.06}));
  CHECK(forecaster.forecast(bench.job).judging_s - judging_s == Approx(0.5 + 48 * 0.06));
  const double after_s = forecaster.forecast(bench.job).seconds();
  // after + besides = 1.5 (before + besides)
  const double besides_s = 2 * after_s - 3 * before_s;
  CHECK(said_of(besides_s + 0.01)[0].empty());
  const std::vector<std::string> said = said_of(besides_s - 0.01);
  CHECK(said[0] == fmt::format("forecast: the run was foretold {}, now {}: mine.so takes 0.5 s to "
                               "open and 60 ms for each judged step",
                               duration_text(before_s + besides_s),
                               duration_text(after_s + besides_s)));
  CHECK(said[1].empty());  // said already, and not wrong by half again
  CHECK(holds(said[2], " and 2043 ms for each judged step"));
  // A long prompt says nothing of a token.
  const double timing_s = forecaster.forecast(bench.job).timing_s;
  REQUIRE(forecaster.learn(bench.job, kMine, {.open_s = 0.5, .judged_s = 2, .least_s = 0.06}));
  CHECK(forecaster.forecast(bench.job).judging_s - judging_s == Approx(0.5 + 48 * 2));
  CHECK(forecaster.forecast(bench.job).timing_s == Approx(timing_s));
}

TEST_CASE("a timed sample says more of a token than judged steps do") {
  Bench bench;
  prepare(bench);
  Forecaster forecaster = measured(bench);
  Foretold foretold(forecaster, [] { return 0.0; });
  foretold.say({bench.job}, 1e-3, 0);
  const double before_s = forecaster.forecast(bench.job).timing_s;
  SampleTaken taken{kMine, {}, 1};
  taken.sample.tokens = 16;
  taken.sample.times.host_ms = 16 * 50;
  // What was seen on another model says nothing of this one.
  CaseJob other = bench.job;
  other.model = named("other");
  CHECK(foretold.take(other, taken).empty());
  foretold.take(bench.job, StageProgress{.stage = "parity", .engine = kMine});
  foretold.take(bench.job,
                StageProgress{.stage = "parity", .engine = kMine, .done = 48, .total = 48});
  CHECK(forecaster.forecast(bench.job).timing_s == before_s);
  CHECK(holds(foretold.take(bench.job, taken),
              "mine.so takes 0.0 s to open and 50 ms for each token"));
  const double steps = 16 * (100 + 4) + (4 + 96 / 8.0) * 32;  // blocks and warm-ups, receipts
  CHECK(forecaster.forecast(bench.job).timing_s - before_s == Approx(0.05 * steps).epsilon(1e-3));
}

TEST_CASE("memory is said again from half as much again on, each time") {
  Bench bench;
  Forecaster forecaster(300);
  Foretold foretold(forecaster, [] { return 0.0; });
  CHECK(foretold.held(int64_t{1} << 40).empty());  // nothing was said
  foretold.say({}, 0, 4'800'000'000);
  foretold.take(bench.job, StageProgress{.stage = "upload", .engine = kMine});
  CHECK(foretold.held(7'200'000'000).empty());
  CHECK(foretold.held(31'900'000'000) ==
        "forecast: memory was foretold 4,800 MB, now at least 31,900 MB: mine.so is open");
  CHECK(foretold.held(47'850'000'000).empty());
  CHECK_FALSE(foretold.held(47'850'000'001).empty());
}

}  // namespace
}  // namespace mkbench::testing
