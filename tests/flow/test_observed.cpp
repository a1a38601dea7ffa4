// Observed blocks: when a candidate is asked for logits as well, and what becomes of the times.
#include <set>

#include "harness/flow/observed.h"
#include "tests/support/case_bench.h"
#include "tests/support/catch2.h"

namespace mkbench::testing {
namespace {

// A kernel that takes 1 ms a token, and `shown_ms` more where it is asked for logits from row
// `from` on.
struct ObservedBench : Bench {
  explicit ObservedBench(int blocks, int processes = 1) {
    job.observed = true;
    job.blocks = job.max_blocks = blocks;
    job.processes = processes;
    scripts["kernel"].works = [this](int tokens, bool shown, int position) {
      pass_ms(tokens);
      if (shown && position >= from) pass_ms(shown_ms * tokens);
    };
  }
  double shown_ms = 0.5;
  int from = 0;
};

std::vector<int> blocks_of(const EngineReport& e) {
  std::vector<int> blocks;
  for (const ObservedDecode& o : e.observed.decodes) blocks.push_back(o.block);
  return blocks;
}

TEST_CASE("the first block of a process and one of each later eight are observed") {
  ObservedBench bench(40, 2);
  const CaseReport c = bench.run();
  const EngineReport& kernel = engine_of(c, "kernel");
  INFO(reason_of(kernel));
  REQUIRE(kernel.verdict == Verdict::kPass);
  // They are no samples, and launches of samples alone are counted.
  CHECK(kernel.samples.size() == 40);
  CHECK(kernel.launches == 40);
  CHECK(kernel.observed.reason.empty());
  REQUIRE(kernel.observed.handovers.size() == 2);
  for (int p = 0; p < 2; ++p) {
    const HandoverTimes& h = kernel.observed.handovers[static_cast<size_t>(p)];
    CHECK((h.process == p && h.tokens == 8));
    CHECK((h.bare_ms.size() == kHandoverPairs && h.shown_ms.size() == kHandoverPairs));
    CHECK(h.shown_ms[1] - h.bare_ms[1] == Approx(4).epsilon(0.01));
  }
  std::map<int, int> groups;  // 20 blocks a process: 8, 8, and half of a third group
  for (const ObservedDecode& o : kernel.observed.decodes) {
    CHECK((o.process == o.block / 20 && o.tokens == 8));
    CHECK(o.host_ms == Approx(12).epsilon(0.01));
    ++groups[100 * o.process + o.block % 20 / kObservedShare];
  }
  for (const int group : {0, 1, 100, 101}) CHECK(groups[group] == 1);
  CHECK((kernel.observed.decodes.front().block == 0 && groups[2] <= 1));
  CHECK(*kernel.observed.quicker.value == Approx(1).epsilon(0.01));
  CHECK(kernel.observed.caution.empty());
  const EngineReport& eager = engine_of(c, "eager");
  CHECK((eager.observed.decodes.empty() && eager.observed.reason == kObservedNotAsked));
  bench.job.seed = 2;
  CHECK(blocks_of(engine_of(bench.run(), "kernel")) != blocks_of(kernel));
}

TEST_CASE("an engine that catches up when it is asked is not FASTER") {
  ObservedBench bench(12, 4);
  bench.job.ids = std::vector<int32_t>(21, 3);
  bench.from = 20;  // the single id of a handover and its tokens lie below
  const CaseReport c = bench.run();
  const EngineReport& kernel = engine_of(c, "kernel");
  INFO(reason_of(kernel));
  CHECK(*kernel.observed.handover_ms.value < 0.01);
  CHECK(*kernel.observed.quicker.value == Approx(1.5).epsilon(0.01));
  CHECK(holds(kernel.observed.caution, "quicker where nobody looks: 1.0"));
}

TEST_CASE("the first decode of the timed length with logits is not timed") {
  ObservedBench bench(2);
  bench.scripts["kernel"].works = [&bench, decodes = 0](int tokens, bool shown, int) mutable {
    if (shown && tokens == bench.job.n_gen && ++decodes == kHandoverPairs + 1) bench.pass_ms(5000);
    bench.pass_ms(1);
  };
  bench.job.n_gen = 11;
  const EngineReport kernel = engine_of(bench.run(), "kernel");
  REQUIRE(kernel.observed.decodes.size() == 1);
  CHECK(kernel.observed.decodes[0].host_ms < 2);
}

TEST_CASE("engines without logits are not observed, and the report says why") {
  ObservedBench bench(3);
  bench.scripts["kernel"].logits = false;
  CHECK(engine_of(bench.run(), "kernel").observed.reason == "it gives no logits");
  bench.job.observed = false;
  bench.scripts["kernel"].logits = true;
  const EngineReport kernel = engine_of(bench.run(), "kernel");
  CHECK((kernel.observed.reason == kObservedNotAsked && kernel.observed.handovers.empty()));
}

TEST_CASE("a decode whose logits take over 256 MiB is not observed") {
  Bench bench;
  std::vector<EngineObserved> sent;
  EventSink sink([&](const CaseEvent& e) { sent.push_back(std::get<EngineObserved>(e)); });
  CaseJob job;
  job.observed = true;
  Contestant c(CaseEngine{.name = "kernel", .asked = "kernel", .candidate = true});
  c.engine = std::make_unique<ScriptedEngine>(Script{});
  for (const int n : {64, 65}) {
    job.n_gen = n;
    ObservedDecodes observed(job, bench.services, 1 << 20, sink);
    observed.measure_handover(c, 0, [] { return 3; });
    CHECK(observed.is_due(c, 0, 0, 0) == (n == 64));
  }
  REQUIRE(sent.size() == 2);
  CHECK((sent[0].reason.empty() && sent[0].handover->tokens == kHandoverTokens));
  CHECK(sent[1].reason == "logits of 65 tokens take 260 MiB, at most 256 are asked for");
}

TEST_CASE("a slow engine hands logits over three times") {
  ObservedBench bench(2);
  bench.shown_ms = 300;
  const EngineReport kernel = engine_of(bench.run(), "kernel");
  REQUIRE(kernel.observed.handovers.size() == 1);
  CHECK(kernel.observed.handovers[0].bare_ms.size() == 3);
}

TEST_CASE("observed decodes of a dropped block are dropped with it") {
  ObservedBench bench(2);
  CaseCollector collector(bench.job);
  for (const int block : {0, 1})
    collector.take(EngineObserved{.engine = "kernel", .decode = ObservedDecode{0, block, 8, 9}});
  collector.take(BlockDropped{0, "eager", "slow clock"});
  CHECK(blocks_of(engine_of(collector.report(), "kernel")) == std::vector<int>{1});
}

}  // namespace
}  // namespace mkbench::testing
