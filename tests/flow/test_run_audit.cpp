// The audit that ends a run on a card.
#include "tests/support/audit_bench.h"
#include "tests/support/catch2.h"

using namespace mkbench;
using namespace mkbench::testing;

TEST_CASE("a run audits its candidates by counters, and by a few tiles where there are none") {
  const auto step = [](int n) {
    return static_cast<double>(model("tied").config.shape.bytes_per_step((n - 1) / 2.0)) * n;
  };
  Bench bench;
  bench.plan.job.n_gen = 128;
  bench.count_bytes = [&](const std::string&, int n) {
    return ByteCounts{.dram_bytes = 0.996 * step(n), .l2_hit_bytes = 0, .kernels = 1};
  };
  bench.run_as_candidate();
  CHECK(bench.line == "reads 99.6 % of what a token must read");
  CHECK((bench.given.empty() && bench.kernel.alive && bench.opened == 0));
  bench.kernel.can.one_launch = true;
  bench.run_as_candidate();
  bench.plan.job.n_gen = 3;
  bench.run_as_candidate();
  CHECK(bench.tokens == std::vector<int>{2, 32, 3});

  bench.count_bytes = [](const std::string&, int) {
    return ByteCounts{.dram_bytes = 9, .l2_hit_bytes = 0, .kernels = 1};
  };
  bench.run_as_candidate();
  CHECK(bench.line == "reads 0.0 % of what a token must read");
  CHECK(bench.given.starts_with("INTEGRITY audit: "));
  CHECK(!bench.kernel.alive);
  bench.kernel.can.precision = PrecisionClass::kLossy;
  bench.given.clear();
  bench.run_as_candidate();
  CHECK(bench.line == "not audited: it reads weights of its own, quantised");
  CHECK((bench.given.empty() && bench.tokens.size() == 4));

  Bench tiles;
  tiles.plan.job.n_gen = 2;
  tiles.plan.job.depth = 100'000;  // tiles are tried near the start all the same
  tiles.kernel.can.one_launch = true;
  tiles.count_bytes = [](const std::string&, int) {
    return ByteCounts{.dram_bytes = 0, .l2_hit_bytes = 0, .kernels = 0, .problem = "not permitted"};
  };
  tiles.run_as_candidate();
  CHECK(tiles.line == "reads 12 of 12 tiles of the weights; no counters: not permitted");
  CHECK((tiles.given.empty() && tiles.kernel.alive));
  CHECK(tiles.most_context == 64);
  tiles.skip = [](const NamedTensor& t, int, int) { return t.name == "lm_head.weight"; };
  tiles.run_as_candidate();
  CHECK(holds(tiles.line, "of 12 tiles of the weights; no counters: not permitted"));
  CHECK(holds(tiles.given, "INTEGRITY audit: head: "));

  // What says nothing about the reads accuses nobody.
  const auto says = [](const std::function<void(Bench&)>& change) {
    Bench other;
    other.count_bytes = [](const std::string&, int) { return ByteCounts{.problem = "no ncu"}; };
    change(other);
    other.run_as_candidate();
    CHECK((other.given.empty() && other.kernel.alive));
    return other.line;
  };
  CHECK(holds(says([](Bench& b) { b.deterministic = false; }), "not audited: the engine says"));
  CHECK(says([](Bench& b) { b.fails = true; }) == "not audited: it gives up; no counters: no ncu");
  CHECK(says([](Bench& b) { b.load_fails = true; }) == "not audited: no memory");
  CHECK(says([](Bench& b) { b.seconds_a_look = 25; }) ==
        "not audited: the tiles take longer than 60 s; no counters: no ncu");
  CHECK(says([](Bench& b) { b.seconds_a_look = 1; }).starts_with("reads 12 of 12"));
}
