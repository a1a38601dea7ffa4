// The flow of a case beyond gate and samples: baselines that only judge, parity taken from an
// earlier case, ablations, memory, which references a model has.
#include <fmt/format.h>

#include <string>
#include <vector>

#include "harness/flow/gate.h"
#include "references/base/error.h"
#include "references/model_row.h"
#include "references/synthetic.h"
#include "tests/support/case_bench.h"
#include "tests/support/catch2.h"

namespace mkbench::testing {
namespace {

TEST_CASE(
    "the memory that is held is told when engines are made, are judged, and have a run scored") {
  Bench bench;
  int64_t asked = 0;
  bench.services.held_bytes = [&] { return ++asked; };
  bench.run();
  std::vector<CaseEvent> events;
  for (const CaseEvent& m : bench.messages) {
    if (!std::holds_alternative<StageProgress>(m)) events.push_back(m);
  }
  int64_t told = 0;
  for (size_t i = 0; i < events.size(); ++i) {
    const auto* held = std::get_if<MemoryHeld>(&events[i]);
    if (held != nullptr) CHECK(held->bytes == ++told);
    if (std::holds_alternative<EngineMade>(events[i]) ||
        std::holds_alternative<ParityJudged>(events[i]))
      CHECK(std::holds_alternative<MemoryHeld>(events.at(i + 1)));
    if (std::holds_alternative<SampleScored>(events[i]))
      CHECK(std::holds_alternative<MemoryHeld>(events.at(i - 1)));
  }
  CHECK(told == 2 + 2 + 6);  // two engines are made and judged, and six runs are scored
}

TEST_CASE("a baseline that is not timed still judges") {
  Bench bench;
  bench.job.engines[0].yardstick = false;
  const CaseReport c = bench.run();
  const EngineReport &eager = engine_of(c, "eager"), &kernel = engine_of(c, "kernel");
  CHECK(eager.verdict == Verdict::kPass);
  CHECK(eager.samples.empty());
  CHECK_FALSE(eager.ms_per_tok.has_value());
  CHECK(holds(eager.times_withheld, "not timed"));
  CHECK(kernel.samples.size() == 3);
  CHECK(kernel.ms_per_tok.has_value());
  REQUIRE(c.comparisons.size() == 1);
  CHECK_FALSE(c.comparisons[0].speedup.value.has_value());
  CHECK(holds(c.comparisons[0].speedup.reason, "not timed"));

  bench.scripts["eager"].wrong = [](int, int position) { return position == 1; };
  CHECK(engine_of(bench.run(), "kernel").verdict == Verdict::kNotJudged);

  Bench wrong;
  wrong.job.engines[0].yardstick = false;
  wrong.scripts["kernel"].wrong = [](int, int position) { return position == 5; };
  const CaseReport failed = wrong.run();
  CHECK(engine_of(failed, "kernel").verdict == Verdict::kFailToken);
  CHECK(engine_of(failed, "eager").samples.empty());
}

TEST_CASE("parity is judged once a run, and tokens are checked in every case") {
  Bench bench;
  const CaseReport first = bench.run();
  bench.job.judged = parity_memo(first);
  REQUIRE(bench.job.judged.has_value());
  // Decode 1 was in the gate, and the second case must not run the gate again.
  const auto in_gate = [](int decode, int) { return decode == 1; };
  bench.scripts["kernel"].wrong = [in_gate](int decode, int position) {
    return in_gate(decode, position);
  };
  bench.job.warmup = 1;  // without a gate, decode 1 is the warm-up, whose ids are not checked
  const CaseReport second = bench.run();
  const EngineReport& kernel = engine_of(second, "kernel");
  INFO(reason_of(kernel));
  CHECK(kernel.verdict == Verdict::kPass);
  REQUIRE(kernel.parity.has_value());
  CHECK(kernel.parity->judged_in == first.name);
  CHECK(kernel.parity->strict_matched == kSteps);
  CHECK(second.reference == first.reference);
  CHECK(kernel.receipts_checked == 24);

  // A wrong token in a timed sample is caught without a gate too.
  bench.scripts["kernel"].wrong = [](int decode, int position) {
    return decode == 2 && position == 2;
  };
  CHECK(engine_of(bench.run(), "kernel").verdict == Verdict::kFailToken);

  // A case in which an engine failed gives no findings to later cases.
  Bench failed;
  failed.scripts["kernel"].wrong = [](int, int position) { return position == 5; };
  CHECK_FALSE(parity_memo(failed.run()).has_value());
}

TEST_CASE(
    "what a live reference has judged is taken over where a closed form checks timed tokens") {
  Bench live;
  live.references.clear();
  live.scripts["eager"].runner_up = live.scripts["eager-head-fp32"].runner_up = 0.05f;
  live.job.ids.clear();
  CaseReport first = live.run();
  CHECK(live.made["eager-head-fp32"] ==
        1);  // the run that made the reference judges the baseline, too
  CHECK(engine_of(first, "kernel").verdict == Verdict::kPassLive);
  CHECK_FALSE(
      parity_memo(first).has_value());  // the truth of a user's model scores its timed tokens

  live.job.model = named("synthetic:cut");
  first.model = live.job.model.name;
  live.job.judged = parity_memo(first);
  REQUIRE(live.job.judged.has_value());
  CHECK(live.job.judged->references.is_live());
  const CaseReport second = live.run();
  CHECK(live.made["eager-head-fp32"] == 1);
  for (const char* name : {"eager", "kernel"}) {
    const EngineReport& e = engine_of(second, name);
    CHECK(e.verdict == Verdict::kPassLive);
    REQUIRE(e.parity.has_value());
    CHECK(e.parity->judged_in == first.name);
  }
  CHECK(second.reference == "live");

  first.engines.back().parity->verdict = Verdict::kFailToken;
  CHECK_FALSE(parity_memo(first).has_value());
}

TEST_CASE("with one engine open at a time, each turn opens its engine and closes it") {
  Bench bench;
  bench.job.one_at_a_time = true;
  const CaseReport c = bench.run();
  CHECK(c.resident == "one");
  for (const char* name : {"eager", "kernel"}) {
    CHECK(engine_of(c, name).verdict == Verdict::kPass);
    CHECK(engine_of(c, name).samples.size() == 3);
  }
  for (const char* name : {"eager", "kernel"}) CHECK(bench.made[name] == 1 + 3);  // judged, timed
  CHECK(bench.most_open == 2);  // the judge and its run with an fp32 head
  CHECK(bench.open == 0);
  CHECK(c.bytes_needed == 3000);  // these two and the truth; with the kernel beside them 4000

  Bench live;  // the truth scores the timed ids once the engines are closed
  live.job.one_at_a_time = true;
  live.references.clear();
  live.scripts["eager"].runner_up = live.scripts["eager-head-fp32"].runner_up = 0.05f;
  CHECK(engine_of(live.run(), "kernel").verdict == Verdict::kPassLive);
}

TEST_CASE("prefill tests are checked by their KV rows and by the tokens that follow") {
  Bench bench;
  bench.references.clear();
  bench.job.ids.clear();
  bench.job.n_prompt = 4;
  bench.job.n_gen = 0;
  bench.scripts["eager"].runner_up = bench.scripts["eager-head-fp32"].runner_up = 0.05f;
  const CaseReport c = bench.run();
  const EngineReport& e = engine_of(c, "kernel");
  CHECK(e.verdict == Verdict::kPassLive);
  REQUIRE(e.samples.size() == 3);
  CHECK(bench.turns == 1 + 2 + 6);
  CHECK(bench.timed_calls == 2 * 6);  // the prefill, and the first token
  CHECK(bench.ended_calls == 2 * 6);
  CHECK(bench.loose_calls == 0);
  CHECK(e.samples[0].tokens == 4);
  CHECK(e.samples[0].ids.size() == kPrefillCheckTokens);
  CHECK(e.samples[0].receipts_checked == 4 + kPrefillCheckTokens);
  CHECK(e.ms_per_tok.has_value());
  REQUIRE(e.ttft_ms.value.has_value());
  CHECK(*e.ttft_ms.value >= *e.prefill_ms.value);
  CHECK(e.samples[0].state_checked.empty());

  // KV rows that differ from one prefill to the next are nondeterministic.
  bench.scripts["kernel"].kv_checksum = [](int prefills) {
    return static_cast<uint64_t>(prefills);
  };
  for (const bool copies : {false, true}) {
    bench.scripts["kernel"].copies = copies;
    const CaseReport other = bench.run();
    CHECK(engine_of(other, "kernel").verdict == Verdict::kNondeterministic);
  }
  bench.scripts["kernel"].deterministic = false;  // as it says itself
  const CaseReport declared = bench.run();
  CHECK(engine_of(declared, "kernel").verdict == Verdict::kPassLive);
  CHECK(engine_of(declared, "kernel").samples[0].receipts_checked == kPrefillCheckTokens);
}

TEST_CASE("ablations come after the samples and decide nothing") {
  Bench bench;
  bench.job.ablations = true;
  bench.has_ablations = true;
  bench.scripts["kernel"].skips = true;
  const CaseReport c = bench.run();
  const EngineReport& kernel = engine_of(c, "kernel");
  CHECK(kernel.verdict == Verdict::kPass);
  CHECK(kernel.samples.size() == 3);
  CHECK(kernel.launches == 3);
  REQUIRE(kernel.profile.has_value());
  CHECK(kernel.profile->no_waits_runs_us.size() == 5);
  CHECK(kernel.profile->no_loads_runs_us.size() == 5);
  CHECK(kernel.profile->full_us.value.has_value());
  // The gate, two warm-ups, six samples, and six runs of each of two ablations.
  CHECK(bench.turns == 1 + 2 + 6 + 2 * 6);
  CHECK(bench.loose_calls == 0);
  CHECK_FALSE(kernel.profile->binds.empty());
  CHECK(bench.ablations ==
        std::vector<Ablation>{Ablation::kNoWaits, Ablation::kNoLoads, Ablation::kNone});
  CHECK_FALSE(engine_of(c, "eager").profile.has_value());
  size_t last_sample = 0, first_profile = 0;
  for (size_t i = 0; i < bench.messages.size(); ++i) {
    if (std::holds_alternative<SampleTaken>(bench.messages[i])) last_sample = i;
    if (std::holds_alternative<AblationsTaken>(bench.messages[i]) && first_profile == 0)
      first_profile = i;
  }
  CHECK(last_sample < first_profile);

  Bench none;  // an engine without ablations
  none.job.ablations = true;
  const CaseReport without = none.run();
  CHECK_FALSE(engine_of(without, "kernel").profile.has_value());
  CHECK(holds(engine_of(without, "kernel").profile_reason, "no ablations"));

  Bench stuck;  // an engine that cannot skip to a depth
  stuck.job.ablations = stuck.has_ablations = true;
  CHECK(holds(engine_of(stuck.run(), "kernel").profile_reason, "without computing"));

  Bench broken;  // an engine that fails in an ablation keeps its PASS
  broken.job.ablations = broken.has_ablations = true;
  broken.scripts["kernel"].skips = true;
  broken.scripts["kernel"].before = [](int decode) {
    if (decode == 11) throw Error(ErrorKind::kHang, "wait ran out");
  };
  const CaseReport b = broken.run();
  CHECK(engine_of(b, "kernel").verdict == Verdict::kPass);
  CHECK(holds(engine_of(b, "kernel").profile_reason, "wait ran out"));

  Bench unasked;
  unasked.has_ablations = true;
  CHECK(engine_of(unasked.run(), "kernel").profile_reason == kProfileNotAsked);
  CHECK(unasked.ablations.empty());
}

TEST_CASE("stated memory includes the context that parity needs") {
  Bench bench;
  std::vector<int> contexts;
  bench.services.bytes = [&](const EngineRequest& request, const ModelConfig&) {
    contexts.push_back(request.max_context);
    return int64_t{1};
  };
  bench.references[0].prompts[0].ids.assign(150, 3);
  const CaseMemory memory = case_memory(bench.job, bench.services, bench.services.config(""));
  CHECK(memory.needed == 3);
  // 150 + 12 positions, rounded up to a multiple of 64.
  for (const int context : contexts) CHECK(context == 192);
}

TEST_CASE("stated memory has room for the truth where no closed form covers the depth") {
  Bench bench;
  bench.job.ids.clear();
  bench.services.bytes = [](const EngineRequest& request, const ModelConfig&) {
    return int64_t{request.name == "eager-fp32" ? 50'000 : 1000};
  };
  const auto needed = [&](const std::string& model, int depth) {
    bench.job.model = named(model);
    bench.job.depth = depth;
    return case_memory(bench.job, bench.services, bench.services.config(model)).needed;
  };
  CHECK(needed("synthetic:short", 10) == 50'000);
  CHECK(needed("synthetic:short", 11) < 50'000);
  CHECK(needed("synthetic", 0) < 50'000);  // its lag set depends on the depth
  bench.services.config = [](const std::string&) {
    ModelConfig config;
    config.shape.vocab = 3072;
    config.max_positions = 256;
    return config;
  };
  const StateCode code(3072);
  bench.job.ids = std::vector<int32_t>(12, code.token(1));
  CHECK(needed("synthetic:short", 0) < 50'000);
  for (bench.job.ids[3] = 0; code.state(bench.job.ids[3]) >= 0;) ++bench.job.ids[3];
  CHECK(needed("synthetic:short", 0) == 50'000);  // an id without a state
}

TEST_CASE("of six engines any two may be left out so that the others fit, of seven only one") {
  for (const int count : {6, 7}) {
    Bench bench;
    for (int i = 2; i < count; ++i)
      bench.job.engines.push_back(
          {.name = fmt::format("engine-{}", i), .asked = "", .yardstick = true});
    bench.services.bytes = [](const EngineRequest& request, const ModelConfig&) {
      const bool large = request.name == "engine-3" || request.name == "engine-5";
      return int64_t{large ? 100 : 1};
    };
    bench.job.one_at_a_time = true;
    const ModelConfig config = bench.services.config("");
    const std::string told = what_would_fit(bench.job, bench.services, config, 50);
    INFO(told);
    CHECK(told.starts_with("what would fit: without engine-3 and engine-5 (") == (count == 6));
  }
}

// A kernel whose events show `event_ms`, on a host whose clock shows 1 ms and 0.15 ms of overhead in
// its first 22 timed calls (20 measure the overhead, two are samples), then 0.25 ms.
struct ClockBench : Bench {
  explicit ClockBench(double event_ms) {
    job.blocks = job.max_blocks = 6;
    scripts["kernel"].event_ms = [event_ms](int) { return event_ms; };
    services.timed = [this, calls = 0](Engine& engine,
                                       const std::function<void()>& call) mutable -> TimedCall {
      TimedCall timed = time_call(services.now, call);
      if (engine.capabilities().name != "kernel") return timed;
      timed.ms = ++calls <= 22 ? 1.15 : 1.25;
      return timed;
    };
  }
};

TEST_CASE("an overhead that changes is measured again before an engine fails for its clocks") {
  ClockBench honest(1);
  const CaseReport c = honest.run();
  const EngineReport& kernel = engine_of(c, "kernel");
  INFO(reason_of(kernel));
  CHECK(kernel.verdict == Verdict::kPass);
  REQUIRE(kernel.clock_overhead);
  CHECK(kernel.clock_overhead->runs == 40);
  // Each run has a turn, as have the gate, warm-ups and samples, of which one was repeated.
  CHECK(honest.turns == 40 + 1 + (1 + 7) + (1 + 6));
  CHECK(kernel.clock_overhead->event_ms == Approx(0.2));
  CHECK(kernel.samples[2].repeats == 1);
  CHECK(kernel.samples[3].repeats == 0);
  CHECK_FALSE(engine_of(c, "eager").clock_overhead);  // it has one clock

  // Events that say nothing of the decode: no overhead explains 1.5 ms where the call took 1.15.
  ClockBench lying(1.5);
  CHECK(engine_of(lying.run(), "kernel").verdict == Verdict::kIntegrity);
}

TEST_CASE("the overhead is measured without a warm-up too") {
  ClockBench bench(1);
  bench.job.warmup = 0;
  const CaseReport c = bench.run();
  CHECK(engine_of(c, "kernel").verdict == Verdict::kPass);
  CHECK(engine_of(c, "kernel").clock_overhead->runs == 40);
}

TEST_CASE("a folder has the references of Qwen3-0.6B where it has that shape, not by its name") {
  Bench bench;
  std::vector<std::string> asked;
  bench.services.references = [&](const std::string& name) {
    asked.push_back(name);
    return std::vector<GreedyReference>();
  };
  const auto references_of = [&](const std::string& model, const ModelShape& shape) {
    asked.clear();
    bench.job.model = named(model);
    planned_shapes(bench.job, bench.services, shape);
    return asked.at(0);
  };
  CHECK(references_of("models/Qwen3-0.6B", kQwen3_0_6B) == "qwen3-0.6b");
  CHECK(references_of("models/Qwen3-0.6B", kTiny).empty());
  CHECK(references_of("models/qwen3-0.6b/", kTiny).empty());
  CHECK(references_of("models/tiny", kTiny).empty());
  CHECK(references_of("models/mine", kTiny) == "mine");
  CHECK(references_of("tiny", kTiny) == "tiny");
  bench.job.reference_dir = "mine";
  CHECK(references_of("models/Qwen3-0.6B", kTiny) == "Qwen3-0.6B");
}

TEST_CASE("an engine without code for the model is refused before anything is loaded") {
  const auto refuse = [](Bench& bench, ErrorKind kind) {
    bench.services.bytes = [kind](const EngineRequest& request, const ModelConfig&) -> int64_t {
      if (request.name == "kernel") throw Error(kind, "no layout");
      return 1000;
    };
  };
  for (const bool two : {false, true}) {
    for (const bool whole_parity : {false, true}) {
      Bench bench;
      bench.job.whole_parity = whole_parity;
      if (two) bench.job.engines.push_back({.name = "other", .asked = "other", .candidate = true});
      int loads = 0;
      bench.services.load = [&, load = bench.services.load](const std::string& model, int depth) {
        ++loads;
        return load(model, depth);
      };
      refuse(bench, ErrorKind::kBadInput);
      const CaseReport c = bench.run();
      INFO(two << whole_parity);
      CHECK(engine_of(c, "kernel").verdict == Verdict::kBadInput);
      CHECK(testing::reason_of(engine_of(c, "kernel")) == "no layout");
      CHECK(bench.made["kernel"] == 0);
      CHECK((loads > 0) == two);
      CHECK((bench.made["eager"] > 0) == two);
      CHECK(engine_of(c, "eager").verdict == (two ? Verdict::kPass : Verdict::kSkipped));
      CHECK((bench.made["other"] > 0) == two);
    }
  }
  Bench anyway;
  anyway.job.time_anyway = true;
  refuse(anyway, ErrorKind::kBadInput);
  const CaseReport c = anyway.run();
  CHECK((anyway.made["kernel"] == 0 && engine_of(c, "eager").samples.size() == 3));
  Bench broken;  // any other error of the question ends the case
  refuse(broken, ErrorKind::kEnvUnfit);
  CHECK(broken.run().verdict == Verdict::kEnvUnfit);
}

TEST_CASE("a missing reference names a command that makes it for this model") {
  Bench bench;
  bench.references.clear();
  const auto advice = [&](const std::string& model, const std::string& folder) {
    bench.job.model = named(model);
    bench.job.reference_dir = folder;
    bench.job.require_reference = true;
    try {
      find_case_references(bench.job, bench.services, bench.services.load("", 0));
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  CHECK(holds(advice("models/mine", ""), "capture_reference.py models/mine --prompt "));
  CHECK(holds(advice("models/mine", "refs"),
              "capture_reference.py models/mine --out refs/mine/reference.json --prompt "));
  const std::string ours = advice("synthetic", "refs");
  CHECK(holds(ours,
              "capture_reference.py synthetic:short --out "
              "refs/synthetic/reference-short.json"));
  CHECK_FALSE(holds(ours, "--prompt"));
}

}  // namespace
}  // namespace mkbench::testing
