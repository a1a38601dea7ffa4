// Launches that the driver recorded: their sums, and what a case makes of them.
#include <algorithm>
#include <string>
#include <vector>

#include "harness/measure/launch_trace.h"
#include "references/base/error.h"
#include "tests/support/case_bench.h"
#include "tests/support/catch2.h"

namespace mkbench {
namespace {

using testing::Bench;
using testing::engine_of;
using testing::reason_of;
using What = LaunchRecord::What;

TEST_CASE("records are summed: graphs by their launch, times by what is covered") {
  const LaunchTrace none = sum_launches({});
  CHECK((none.launches() == 0 && none.wall_ms == 0 && none.busy_ms == 0));

  std::vector<LaunchRecord> records = {
      {What::kCopy, false, 1, 1'000'000, 1'500'000},
      {What::kMemset, false, 2, 2'000'000, 2'000'000},
      {What::kKernel, false, 3, 2'000'000, 4'000'000},
      {What::kKernel, false, 4, 3'000'000, 5'000'000},  // overlaps the one before
      {What::kKernel, false, 5, 3'500'000, 4'500'000},  // lies inside both
      {What::kKernel, true, 6, 6'000'000, 7'000'000},
      {What::kCopy, true, 6, 7'000'000, 7'500'000},
      {What::kMemset, true, 7, 8'000'000, 8'250'000},
      {What::kKernel, true, 7, 9'000'000, 0},  // its end was not seen
      {What::kKernel, false, 10, 0, 0},
      {What::kKernel, false, 11, 4'750'000, 5'250'000},
      {What::kWait, false, 8, 100, 20'000'000},
      {What::kWait, false, 9, 100, 20'000'000},
  };
  for (int turn = 0; turn < 2; ++turn) {
    const LaunchTrace t = sum_launches(records);
    CHECK(t.problem.empty());
    CHECK(t.kernels == 5);
    CHECK(t.graph_launches == 2);
    CHECK(t.launches() == 7);
    CHECK(t.graph_nodes == 4);
    CHECK(t.copies == 1);
    CHECK(t.memsets == 1);
    CHECK(t.synchronisations == 2);
    CHECK(t.wall_ms == Approx(7.25));
    CHECK(t.busy_ms == Approx(0.5 + 3.25 + 1.5 + 0.25));
    std::reverse(records.begin(), records.end());
  }
}

// A case on a GPU whose engines launch `kernels` for a decode.
struct TracedCase : Bench {
  LaunchTrace recorded{.kernels = 1, .copies = 2, .wall_ms = 4, .busy_ms = 3};
  std::vector<int> traced;  // tokens, in the order of the traces
  int samples_before = -1;

  TracedCase() {
    job.device = "cuda";
    services.trace = [this](Engine& engine, int n) {
      if (samples_before < 0) samples_before = samples_seen;
      traced.push_back(n);
      CHECK(engine.position() == 0);  // the prompt is one id
      LaunchTrace trace = recorded;
      trace.tokens = static_cast<int>(engine.decode(n).size());
      return trace;
    };
  }
};

TEST_CASE("each timed engine is traced once, after all samples, from the timed prompt") {
  TracedCase traced;
  const CaseReport c = traced.run();
  CHECK(traced.samples_before == 6);
  CHECK(traced.traced == std::vector<int>{8, 8});
  for (const char* name : {"eager", "kernel"}) {
    const EngineReport& e = engine_of(c, name);
    INFO(name << ": " << reason_of(e));
    CHECK(e.verdict == Verdict::kPass);
    REQUIRE(e.launch_trace.has_value());
    CHECK(e.launch_trace->tokens == 8);
    CHECK(e.launch_trace->kernels == 1);
    CHECK(e.launch_trace->copies == 2);
    CHECK(e.launches == 3);  // the engine's own count, of the samples
  }

  TracedCase longer;  // the truth is found live
  longer.job.n_gen = 100;
  CHECK(engine_of(longer.run(), "kernel").launch_trace.has_value());
  CHECK(longer.traced == std::vector<int>{64, 64});

  TracedCase alone;
  alone.job.engines[0].yardstick = false;
  const CaseReport judged = alone.run();
  CHECK(alone.traced.size() == 1);
  CHECK_FALSE(engine_of(judged, "eager").launch_trace.has_value());
}

TEST_CASE("a claim of one launch holds for one kernel or one graph, and for nothing else") {
  const auto verdict = [](LaunchTrace recorded, bool claims) {
    TracedCase traced;
    traced.recorded = recorded;
    traced.scripts["kernel"].one_launch = claims;
    const CaseReport c = traced.run();
    const EngineReport& e = engine_of(c, "kernel");
    CHECK(engine_of(c, "eager").verdict == Verdict::kPass);
    CHECK(e.launch_trace.has_value());
    CHECK(e.ms_per_tok.has_value() == (e.verdict == Verdict::kPass));
    if (e.verdict == Verdict::kIntegrity) {
      CHECK(reason_of(e) == "claims one launch for a decode; " +
                                std::to_string(recorded.launches()) +
                                " were recorded for 8 tokens");
    }
    return e.verdict;
  };
  CHECK(verdict({.kernels = 1, .copies = 3, .memsets = 2}, true) == Verdict::kPass);
  CHECK(verdict({.graph_launches = 1, .graph_nodes = 400}, true) == Verdict::kPass);
  CHECK(verdict({.kernels = 2}, true) == Verdict::kIntegrity);
  CHECK(verdict({.kernels = 1, .graph_launches = 1}, true) == Verdict::kIntegrity);
  CHECK(verdict({.copies = 1}, true) == Verdict::kIntegrity);
  CHECK(verdict({.kernels = 400}, false) == Verdict::kPass);
  CHECK(verdict({.problem = "no libcupti"}, true) == Verdict::kPass);
}

TEST_CASE("nothing is traced on a CPU, and the report says why") {
  Bench bench;  // has no service for it
  const CaseReport c = bench.run();
  REQUIRE(engine_of(c, "kernel").launch_trace.has_value());
  CHECK(engine_of(c, "kernel").launch_trace->problem == "no GPU");
}

TEST_CASE("an engine that dies under the recorder gets its verdict; the next one is traced") {
  TracedCase traced;
  const auto trace = traced.services.trace;
  traced.services.trace = [&](Engine& engine, int n) {
    if (engine.capabilities().name == "eager")
      throw Error(ErrorKind::kRuntime, "died by signal 11");
    return trace(engine, n);
  };
  const CaseReport c = traced.run();
  CHECK(engine_of(c, "eager").verdict == Verdict::kRuntimeError);
  CHECK_FALSE(engine_of(c, "eager").launch_trace.has_value());
  CHECK(engine_of(c, "kernel").verdict == Verdict::kPass);
  CHECK(engine_of(c, "kernel").launch_trace.has_value());
}

TEST_CASE("where one engine is held at a time, each is made again for its trace") {
  TracedCase traced;
  traced.job.one_at_a_time = true;
  const auto trace = traced.services.trace;
  traced.services.trace = [&](Engine& engine, int n) {
    CHECK(traced.open == 1);
    return trace(engine, n);
  };
  traced.run();
  CHECK(traced.traced.size() == 2);
  // Each is judged once, timed in three blocks, and traced.
  for (const char* name : {"eager", "kernel"}) CHECK(traced.made[name] == 1 + 3 + 1);
}

TEST_CASE("Ctrl-C before the traces leaves them out") {
  TracedCase traced;
  traced.stop_after_samples = 6;
  const CaseReport c = traced.run();
  CHECK(traced.interrupted);
  CHECK(traced.traced.empty());
  CHECK(engine_of(c, "kernel").verdict == Verdict::kPass);
}

}  // namespace
}  // namespace mkbench
