// The parts of `mkbench soak` that need no process: its statistic, its steps, its state, and a soak of the host
// twin in this process.
#include <cmath>
#include <limits>
#include <set>

#include "harness/flow/soak.h"
#include "harness/judge/conclude.h"
#include "harness/measure/statistics.h"
#include "kernels/host_twin/exchange.h"
#include "kernels/host_twin/host_twin.h"
#include "references/base/error.h"
#include "references/snapshot.h"
#include "references/synthetic.h"
#include "tests/support/catch2.h"
#include "tests/support/fake_engine.h"
#include "tests/support/scripted_services.h"

namespace mkbench {
namespace {

using testing::ScriptedServices;

const ModelWeights& tiny() {
  static const ModelWeights weights = load_model(resolve_model("tiny"));
  return weights;
}

// Services that make host twins in this process, which stand still for `stall_ms` at the most; after `calls` calls of
// stop() they ask for an end. A reading of their clock takes a millisecond.
ScriptedServices twins(int64_t calls = std::numeric_limits<int64_t>::max(), int stall_ms = 10000) {
  ScriptedServices services;
  services.now = [s = 0.0]() mutable { return s += 1e-3; };
  services.make_engine = [stall_ms](const EngineRequest& r, const ModelWeights& weights) {
    return make_host_twin(
        weights,
        {.max_context = r.max_context, .threads = 2, .stall_ms = stall_ms, .fault = r.fault});
  };
  services.stop = [left = calls]() mutable { return left-- <= 0; };
  return services;
}

SoakReport asked(int64_t launches, uint64_t seed, int context = 256) {
  SoakReport report;
  report.identity = {.engine = "host-twin",
                     .engine_sha256 = "",
                     .model = "tiny",
                     .weights_sha256 = tiny().sha256,
                     .device = "cpu",
                     .build = "b",
                     .seed = seed,
                     .context = context,
                     .fault = "none"};
  report.asked_launches = launches;
  report.asked_minutes = 5;
  return report;
}

SoakTruth no_truth() { return soak_truth(tiny(), {}, 256); }

void soak(SoakReport& report, const ScriptedServices& services, const SoakTruth& truth,
          PlantedFault fault = PlantedFault::kNone, const ModelWeights& weights = tiny()) {
  SoakPlan plan;
  plan.engine.name = report.identity.engine;
  plan.job.fault = fault;
  run_soak(plan, services, weights, truth, report, [](const SoakReport&) {});
}

// All that does not say when and how often it was interrupted.
nlohmann::json counts_of(const SoakReport& report) {
  nlohmann::json j = soak_json(report);
  j.erase("seconds");
  j.erase("interruptions");
  return j;
}

TEST_CASE("none of N is less than 3/N at 95 %, and the interval covers what was seen", "[soak]") {
  for (const int64_t n : {10, 1000, 1000000}) {
    const Interval none = rate_interval(0, n, 0.95);
    CHECK(none.low == 0);
    CHECK(std::pow(1 - none.high, static_cast<double>(n)) == Approx(0.05));
    CHECK(none.high < 3.0 / static_cast<double>(n));
    CHECK(none.high > 2.5 / static_cast<double>(n));
  }
  // Clopper and Pearson's table: 1 of 10, and 5 of 10.
  CHECK(rate_interval(1, 10, 0.95).low == Approx(0.00253).epsilon(0.01));
  CHECK(rate_interval(1, 10, 0.95).high == Approx(0.44502).epsilon(0.001));
  CHECK(rate_interval(5, 10, 0.95).low == Approx(0.18709).epsilon(0.001));
  CHECK(rate_interval(5, 10, 0.95).high == Approx(0.81291).epsilon(0.001));
  CHECK(rate_interval(10, 10, 0.95).high == 1);
  CHECK(rate_interval(0, 0, 0.95).high == 1);
  CHECK(rate_text({"tokens", 1000, 0}) == "0 of 1,000, so less than 3/1,000 = 0.003 at 95 %");
  CHECK(rate_text({"tokens", 10, 1}) == "1 of 10, so 0.0025 to 0.45 at 95 %");
  CHECK(rate_text({"tokens", 0, 0}) == "not looked at");
}

TEST_CASE("steps follow from the seed, pass every edge and fill the cache", "[soak]") {
  const SoakBounds bounds{.context = 1024, .least_rows = 11, .seed = 5};
  const std::vector<int> edges = soak_edges(bounds);
  for (const int edge : {15, 16, 17, 64, 65, 511, 512, 513, 575, 577, 1023, 1024})
    CHECK(std::count(edges.begin(), edges.end(), edge) == 1);
  std::set<int> passed;
  std::set<uint64_t> beginnings;
  int fills = 0, delayed = 0, plain = 0, often = 0, is_long = 0, further = 0, at_edge = 0;
  for (int64_t number = 0; number < 1200; ++number) {
    const SoakStep step = draw_step(bounds, edges, number);
    const SoakStep again = draw_step(bounds, edges, number);
    CHECK(step_text(step) == step_text(again));
    CHECK(step.prompt_seed == again.prompt_seed);
    REQUIRE(step.rows >= 11);
    REQUIRE(last_position(step) <= 1024);
    if (step.fills) CHECK((last_position(step) == 1024 && step.repeats <= 2));
    if (step.edge >= 0) CHECK(step.edge == at_edge++ % static_cast<int>(edges.size()));
    CHECK(step.known == (number % 8 == 5 || number % 8 == 6));
    if (step.known) CHECK(step.repeats <= 7);
    if (step.stress.delay_us > 0) CHECK(step.rows <= 64);
    fills += step.fills;
    if (step.stress.count_from > 0) beginnings.insert(step.stress.count_from >> 15);
    delayed += step.stress.delay_us > 0;
    plain += step.stress == Stress{};
    // A reset for each of them prefills its prompt again.
    if (step.repeats > 7) REQUIRE(step.rows <= 128);
    REQUIRE(step.repeats <= 56);
    often += step.repeats > 7;
    is_long += step.tokens > 16;
    further = std::max(further, step.further);
    if (step.tokens > 16)
      CHECK((step.tokens == (1024 - 11) * 2 / 3 && step.repeats == 1 && !step.logits));
    for (int t = 0; t < step.tokens; ++t) {
      if (step.edge >= 0 && step.rows + t + 1 == edges[static_cast<size_t>(step.edge)])
        passed.insert(step.edge);
    }
  }
  CHECK(passed.size() >= edges.size() - 2);  // the last two may be behind the last launch's room
  CHECK(fills == 150);
  CHECK(often > 50);
  CHECK(is_long == 9);
  CHECK(further == 2);
  CHECK(delayed > 20);
  CHECK(plain > 200);  // under it engines run what they ship
  CHECK(beginnings == std::set<uint64_t>{1, 0xffff, 0x1ffff});
  CHECK(draw_step({.context = 4096, .least_rows = 11, .seed = 5}, edges, 127).tokens == 2100);
  CHECK(draw_step({.context = 1024, .least_rows = 11, .seed = 6}, edges, 3).prompt_seed !=
        draw_step(bounds, edges, 3).prompt_seed);
}

TEST_CASE("a state reads back, and another soak's is refused by name", "[soak]") {
  SoakReport report = asked(10, 3);
  report.failures.push_back(
      {.step = 4, .check = "tokens", .verdict = Verdict::kFailToken, .reason = "r"});
  report.count(SoakCheck::kTokens) = {"tokens", 17, 2};
  conclude(report, false);
  CHECK(report.exit_code == 3);
  const nlohmann::json j = soak_json(report);
  CHECK(soak_json(soak_of_json(j, "f")) == j);
  nlohmann::json broken = j;
  broken["seconds"] = "long";
  CHECK_THROWS_AS(soak_of_json(broken, "f"), Error);
  broken = j;
  broken["counts"].erase(2);
  CHECK_THROWS_AS(soak_of_json(broken, "f"), Error);
  broken = j;
  broken["schema"]["version"] = "9";
  CHECK_THROWS_AS(soak_of_json(broken, "f"), Error);
  SoakIdentity other = report.identity;
  CHECK(identity_difference(report.identity, other).empty());
  other.seed = 4;
  CHECK(identity_difference(report.identity, other) == "its seed is '3', wanted '4'");
  other = report.identity;
  other.build = "c";
  CHECK(identity_difference(report.identity, other) == "its build is 'b', wanted 'c'");
  other.engine = "plain";
  CHECK(identity_difference(report.identity, other) == "its engine is 'host-twin', wanted 'plain'");
}

TEST_CASE("a sound twin fails none, and an interrupted soak ends with the same counts", "[soak]") {
  SoakReport whole = asked(100, 1);
  soak(whole, twins(), no_truth());
  INFO(render_soak(whole));
  CHECK(whole.verdict == Verdict::kPass);
  CHECK(whole.count(SoakCheck::kLaunches).looked >= 100);
  CHECK(whole.count(SoakCheck::kRestores).looked > 0);
  CHECK(whole.count(SoakCheck::kResets).looked > 0);
  CHECK(whole.stressed);
  CHECK(whole.near_32_bits > 0);
  for (const SoakCount& count : whole.counts) CHECK(count.failed == 0);

  SoakReport parts = asked(100, 1);
  int rounds = 0;
  while (parts.verdict != Verdict::kPass) {
    REQUIRE(++rounds < 20);
    soak(parts, twins(80), no_truth());
    if (parts.verdict == Verdict::kPass) break;
    CHECK(parts.verdict == Verdict::kInterrupted);
    CHECK(parts.exit_code == 130);
    parts = soak_of_json(soak_json(parts), "state");
  }
  CHECK(rounds > 2);
  CHECK(parts.interruptions == rounds - 1);
  CHECK(counts_of(parts) == counts_of(whole));
}

TEST_CASE("a step of a known prompt asks for no more tokens than its reference has") {
  GreedyReference reference;
  for (const auto& [set, ids, steps] :
       {std::tuple("strict", 10, 6), {"strict", 11, 6}, {"near-tie", 3, 6}, {"strict", 3, 0}}) {
    ReferencePrompt& prompt = reference.prompts.emplace_back();
    prompt.set = set;
    prompt.ids.assign(static_cast<size_t>(ids), ids);
    prompt.steps.resize(static_cast<size_t>(steps));
  }
  const SoakTruth truth = soak_truth(tiny(), {reference}, 16);
  CHECK(truth.source == "the 1 strict prompts of the reference");
  struct Row {
    int tokens, further, tokens_left, further_left;
  };
  for (const Row& row : {Row{16, 2, 6, 0}, Row{6, 2, 6, 0}, Row{3, 2, 3, 1}, Row{1, 2, 1, 2}}) {
    for (const bool known : {true, false}) {
      SoakStep step{.rows = 5, .tokens = row.tokens, .further = row.further, .known = known};
      std::vector<int32_t> prompt;
      const std::vector<int32_t> wanted = truth.draw(step, prompt);
      INFO(row.tokens << " " << row.further << known);
      CHECK(prompt.size() == (known ? 10 : 6));
      CHECK(step.rows == static_cast<int>(prompt.size()) - 1);
      CHECK(wanted.size() == (known ? 6 : 0));
      CHECK(step.tokens == (known ? row.tokens_left : row.tokens));
      CHECK(step.further == (known ? row.further_left : row.further));
    }
  }
}

// Bits may differ, so nothing is repeated to the bit; after `good` decodes the next one fails.
class Unsteady final : public testing::FakeEngine {
 public:
  explicit Unsteady(int good) : good_(good) {}
  EngineCapabilities capabilities() const override {
    EngineCapabilities can = FakeEngine::capabilities();
    can.deterministic = good_ < 0;
    return can;
  }
  std::vector<int32_t> decode(int n, const int32_t* forced, float* logits) override {
    if (decodes_++ == good_) throw Error(ErrorKind::kHang, "stands still");
    std::vector<int32_t> ids = FakeEngine::decode(n, forced, logits);
    if (good_ < 0) ids[0] = decodes_ % testing::kFakeVocab;
    if (good_ < 0 && decodes_ == -good_) throw Error(ErrorKind::kHang, "stands still");
    return ids;
  }

 private:
  const int good_;  // below 0: bits are promised and differ, and decode -good_ fails
  int decodes_ = 0;
};

SoakReport soak_unsteady(int good, int64_t launches) {
  ScriptedServices services = twins();
  services.make_engine = [good](const EngineRequest&, const ModelWeights&) {
    return std::make_unique<Unsteady>(good);
  };
  ModelWeights weights;
  weights.config.shape.vocab = testing::kFakeVocab;
  SoakReport report = asked(launches, 1);
  soak(report, services, soak_truth(weights, {}, 256), PlantedFault::kNone, weights);
  return report;
}

TEST_CASE("an engine that promises no bits is launched as often as was asked", "[soak]") {
  const SoakReport sound = soak_unsteady(1'000'000, 50);
  CHECK(sound.verdict == Verdict::kPass);
  CHECK(sound.launches >= 50);
  CHECK(soak_unsteady(0, 50).verdict == Verdict::kHang);
}

TEST_CASE("what a step had found stands beside the call that failed in it", "[soak]") {
  const SoakReport report = soak_unsteady(-4, 50);
  INFO(render_soak(report));
  CHECK(report.count(SoakCheck::kLaunches).failed > 0);
  CHECK(report.count(SoakCheck::kCalls).failed == 1);
  REQUIRE(report.failures.size() == 2);
  CHECK(report.failures[0].verdict == Verdict::kNondeterministic);
  CHECK(report.failures[1].verdict == Verdict::kHang);
}

TEST_CASE("an engine with fewer positions than --context is refused", "[soak]") {
  ScriptedServices narrow = twins();
  narrow.make_engine = [](const EngineRequest&, const ModelWeights& weights) {
    return make_host_twin(weights, {.max_context = 255, .threads = 2});
  };
  SoakReport exact = asked(1, 1, 255), more = asked(1, 1, 256);
  CHECK_NOTHROW(soak(exact, narrow, soak_truth(tiny(), {}, 255)));
  CHECK_THROWS_WITH(soak(more, narrow, no_truth()),
                    ContainsText("--context: found 256, wanted at most its max_context, 255"));
}

TEST_CASE("a soak whose minutes are over is incomplete", "[soak]") {
  SoakReport report = asked(1000000, 1);
  report.asked_minutes = 0.0001;
  soak(report, twins(), no_truth());
  CHECK(report.verdict == Verdict::kIncomplete);
  CHECK(report.exit_code == 5);
}

// Its rows have other bits under delays, as ring's have where the stress asks for attention's slow path.
class OrderOfSums final : public testing::FakeEngine {
 public:
  std::optional<std::string> stress(const Stress& stress) override {
    delayed_ = stress.delay_us > 0;
    return "";
  }
  void prefill(std::span<const int32_t> ids) override {
    FakeEngine::prefill(ids);
    rows_ = delayed_ ? 1 : 0;
  }
  Snapshot save() override {
    Snapshot snapshot = FakeEngine::save();
    snapshot.kv_checksum = rows_;
    return snapshot;
  }
  void restore(const Snapshot& snapshot) override {
    if (snapshot.kv_checksum != rows_) throw Error(ErrorKind::kIntegrity, "rows were modified");
    FakeEngine::restore(snapshot);
  }

 private:
  bool delayed_ = false;
  uint64_t rows_ = 0;
};

TEST_CASE("a prefill runs under the stress of its step, whenever it is repeated", "[soak]") {
  ScriptedServices services = twins();
  services.make_engine = [](const EngineRequest&, const ModelWeights&) {
    return std::make_unique<OrderOfSums>();
  };
  ModelWeights weights;
  weights.config.shape.vocab = testing::kFakeVocab;
  SoakReport report = asked(1200, 1);
  soak(report, services, soak_truth(weights, {}, 256), PlantedFault::kNone, weights);
  INFO(render_soak(report));
  CHECK(report.delayed > 10);
  CHECK(report.count(SoakCheck::kRestores).looked > 50);
  CHECK(report.verdict == Verdict::kPass);
}

TEST_CASE("a race and counters that overflow are found in the twin", "[soak]") {
  // One block's rows late: launches after a restore or reset read what the launch before has left.
  SoakReport late = asked(40, 1, 128);
  soak(late, twins(), no_truth(), PlantedFault::kRowsLate);
  INFO(render_soak(late));
  CHECK(late.verdict == Verdict::kNondeterministic);
  CHECK(late.count(SoakCheck::kLaunches).failed > 5);

  const ScriptedServices impatient = twins(std::numeric_limits<int64_t>::max(), 1500);
  SoakReport overflow = asked(1000, 1, 128);
  soak(overflow, impatient, no_truth(), PlantedFault::kCounterOverflow);
  INFO(render_soak(overflow));
  CHECK((overflow.verdict == Verdict::kHang || overflow.verdict == Verdict::kNondeterministic));
  REQUIRE(!overflow.failures.empty());
  CHECK(overflow.failures[0].reason.find("counters from 4294") != std::string::npos);

  SoakReport reset = asked(1000, 1, 128);
  soak(reset, impatient, no_truth(), PlantedFault::kWordsReset);
  INFO(render_soak(reset));
  CHECK(reset.verdict == Verdict::kHang);
  CHECK(reset.exit_code == 7);
}

TEST_CASE("counters of the twin pass 2^31 and 2^32, whatever blocks are delayed", "[soak]") {
  const std::unique_ptr<Engine> twin = make_host_twin(tiny(), {.max_context = 64, .threads = 2});
  const std::vector<int32_t> prompt = {10, 20, 30};
  twin->prefill(prompt);
  const std::vector<int32_t> wanted = twin->decode(8);
  for (const uint64_t edge : {uint64_t{1} << 16, uint64_t{1} << 31, uint64_t{1} << 32}) {
    twin->reset();
    CHECK(twin->stress({.count_from = edge - 20, .delay_us = 20, .delay_seed = 7}) == "");
    twin->prefill(prompt);
    CHECK(twin->decode(8) == wanted);
  }
}

TEST_CASE("the closed form judges a cut of analytic weights", "[soak]") {
  const ModelWeights weights = make_synthetic(kCutRow, "short");
  const SoakTruth truth = soak_truth(weights, {}, 32);
  CHECK(truth.source == "the closed form of 'short'");
  CHECK(truth.least_rows == 11);
  SoakReport report = asked(1, 2, 32);
  report.asked_tokens = 4;
  soak(report, twins(), truth, PlantedFault::kNone, weights);
  INFO(render_soak(report));
  CHECK(report.verdict == Verdict::kPass);
  CHECK(report.count(SoakCheck::kTokens).looked >= 4);
  // A wrong token is one of the truth's, not of the bits alone.
  SoakReport wrong = asked(1, 3, 64);
  wrong.asked_tokens = 4;
  soak(wrong, twins(), truth, PlantedFault::kQueryPosition, weights);
  INFO(render_soak(wrong));
  CHECK(wrong.verdict == Verdict::kFailToken);
}

}  // namespace
}  // namespace mkbench
