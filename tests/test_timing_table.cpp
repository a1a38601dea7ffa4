// The judge of the faults of timing sees every way in which a run can differ from its table, and the
// table covers T1-T14.
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
  return {
      .verdict = Verdict::kPass, .reasons = {}, .samples = 8, .fastest_ms = 2, .interval = true};
}

TimingOutcome failed() {
  return {.verdict = Verdict::kFailToken, .reasons = {"block 0", "late id 7"}, .samples = 1};
}

bool holds(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
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
  CHECK(holds(surprise({"x", {{Verdict::kPass, ""}}}, outcome), "has none"));
  outcome = failed();
  outcome.fastest_ms = 1;
  CHECK(holds(surprise({"x", {{Verdict::kFailToken, "late id"}}}, outcome), "wanted none"));
}

TEST_CASE("a sound engine that fails, loses samples or shows no interval is a failed control") {
  CHECK(control_surprise(passed(), 8) == "");
  CHECK(holds(control_surprise(failed(), 1), "wanted PASS"));
  CHECK(names_of({{Verdict::kPass, ""}, {Verdict::kHang, "x"}, {Verdict::kPass, "y"}}) ==
        "PASS or HANG");
  CHECK(holds(control_surprise(passed(), 9), "samples: found 8, wanted 9"));
  TimingOutcome outcome = passed();
  outcome.interval = false;
  CHECK(holds(control_surprise(outcome, 8), "no interval"));
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

TEST_CASE("an outcome holds what the report shows") {
  EngineReport engine;
  engine.verdict = Verdict::kPass;
  engine.samples.resize(3);
  engine.ms_per_tok = Summary{.min = 2.5, .ci = Interval{2, 3}};
  const TimingOutcome outcome = timing_outcome(engine);
  CHECK(outcome.verdict == Verdict::kPass);
  CHECK(outcome.samples == 3);
  CHECK(outcome.fastest_ms == 2.5);
  CHECK(outcome.interval);
  engine.ms_per_tok.reset();
  CHECK(timing_outcome(engine).fastest_ms == 0);
}

TEST_CASE("the table covers T1 to T14, and each of its libraries is one of tests/plugins") {
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
  CHECK(ids.size() == 14);
}
