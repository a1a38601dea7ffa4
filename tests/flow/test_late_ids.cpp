// What a time must survive: late ids, state receipts and the time to the first token, against
// engines that work outside the clock.
#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "harness/flow/late_ids.h"
#include "harness/report/readings.h"
#include "tests/support/case_bench.h"
#include "tests/support/catch2.h"

namespace mkbench::testing {
namespace {

// Runs a case whose candidate is a `Cheat`, which gets the script and `more`.
template <typename Cheat, typename... More>
void plant(Bench& bench, More&... more) {
  const auto sound = bench.services.make_engine;
  bench.services.make_engine = [&, sound](const EngineRequest& request,
                                          const ModelWeights& weights) {
    if (request.name != "kernel") return sound(request, weights);
    Script script = bench.scripts[request.name];
    script.name = request.name;
    return std::unique_ptr<Engine>(std::make_unique<Cheat>(script, more...));
  };
}

// Answers a prompt that it has seen from memory.
struct CachesByPrompt final : ScriptedEngine {
  using ScriptedEngine::ScriptedEngine;
  void prefill(std::span<const int32_t> ids) override {
    prompt.assign(ids.begin(), ids.end());
    ScriptedEngine::prefill(ids);
  }
  Ids decode_late(int32_t id, int n) override {
    const Ids right = ScriptedEngine::decode_late(id, n);
    return answers.try_emplace({prompt, n}, right).first->second;
  }
  Ids prompt;
  std::map<std::pair<Ids, int>, Ids> answers;
};

// Decodes inside prefill(), and hands the ids out afterwards.
struct DecodesAhead final : ScriptedEngine {
  using ScriptedEngine::ScriptedEngine;
  void prefill(std::span<const int32_t> ids) override {
    ScriptedEngine::prefill(ids);
    const Snapshot start = save();
    ahead = ScriptedEngine::decode(64, nullptr, nullptr);
    restore(start);
  }
  Ids decode_late(int32_t id, int n) override {
    ScriptedEngine::decode_late(id, n);
    return {ahead.begin(), ahead.begin() + n};
  }
  Ids ahead;
};

struct NotesLateIds final : ScriptedEngine {
  NotesLateIds(const Script& script, Ids& its_given) : ScriptedEngine(script), given(its_given) {}
  Ids decode_late(int32_t id, int n) override {
    given.push_back(id);
    return ScriptedEngine::decode_late(id, n);
  }
  Ids& given;
};

constexpr double kPrefillMs = 15;

// prefill() only notes the ids; the first decode does the work.
struct DefersPrefill final : ScriptedEngine {
  DefersPrefill(const Script& script, Bench& its_bench)
      : ScriptedEngine(script), bench(its_bench) {}
  void prefill(std::span<const int32_t> ids) override {
    ScriptedEngine::prefill(ids);
    owed = true;
  }
  Ids decode(int n, const int32_t* forced, float* logits_out) override {
    if (owed) bench.pass_ms(kPrefillMs);
    owed = false;
    return ScriptedEngine::decode(n, forced, logits_out);
  }
  Bench& bench;
  bool owed = false;
};

// Keeps coarse rows where nobody asks for logits: what follows from them is a little off.
struct CoarseWithoutLogits final : ScriptedEngine {
  using ScriptedEngine::ScriptedEngine;
  void reset() override {
    ScriptedEngine::reset();
    coarse = false;
  }
  void restore(const Snapshot& s) override {
    ScriptedEngine::restore(s);
    coarse = false;
  }
  Ids decode(int n, const int32_t* forced, float* logits_out) override {
    const Ids ids = ScriptedEngine::decode(n, forced, logits_out);
    if (logits_out == nullptr) coarse = true;
    if (coarse && logits_out != nullptr) logits_out[3] += 1e-6f;
    return ids;
  }
  bool coarse = false;
};

struct OtherRowsWithoutLogits final : ScriptedEngine {
  using ScriptedEngine::ScriptedEngine;
  Snapshot save() override {
    Snapshot s = ScriptedEngine::save();
    s.kv_checksum = other ? 2 : 1;
    return s;
  }
  void restore(const Snapshot& s) override {
    other = false;
    ScriptedEngine::restore(s);
  }
  Ids decode(int n, const int32_t* forced, float* logits_out) override {
    other = logits_out == nullptr;
    return ScriptedEngine::decode(n, forced, logits_out);
  }
  bool other = false;
};

TEST_CASE("an engine that answers a prompt from memory or decodes ahead gets a wrong token") {
  SECTION("by prompt") {
    Bench bench;
    bench.job.warmup = 0;  // the first answer that it keeps is the first sample's
    plant<CachesByPrompt>(bench);
    const EngineReport e = engine_of(bench.run(), "kernel");
    CHECK(e.verdict == Verdict::kFailToken);
    CHECK(holds(reason_of(e), "block 1, late id "));
    CHECK_FALSE(e.ms_per_tok.has_value());
    // Its first wrong id can be repeated: the run before the timed one is repeated too.
    REQUIRE(e.parity->failed_step);
    for (const bool sound : {false, true}) {
      Bench again;
      if (!sound) plant<CachesByPrompt>(again);
      again.job.only = e.parity->failed_step;
      const EngineReport repeated = engine_of(again.run(), "kernel");
      INFO(reason_of(repeated));
      CHECK(repeated.verdict == (sound ? Verdict::kPass : Verdict::kFailToken));
      const FailedStep& step = *repeated.parity->failed_step;
      CHECK((step.found == step.expected) == sound);
      CHECK(step.expected == e.parity->failed_step->expected);
    }
  }
  SECTION("ahead") {
    Bench bench;
    bench.job.ids = {3, 4, 5};
    plant<DecodesAhead>(bench);
    const CaseReport c = bench.run();
    CHECK(engine_of(c, "kernel").verdict != Verdict::kPass);
    CHECK_FALSE(engine_of(c, "kernel").ms_per_tok.has_value());
    CHECK(engine_of(c, "eager").verdict == Verdict::kPass);
  }
}

TEST_CASE("each block has one late id for all its engines, and none comes twice") {
  Bench bench;
  bench.job.blocks = bench.job.max_blocks = 8;
  const CaseReport c = bench.run();
  std::set<int32_t> seen;
  for (size_t block = 0; block < 8; ++block) {
    const auto& late = engine_of(c, "kernel").samples.at(block).late_id;
    REQUIRE(late.has_value());
    CHECK(late == engine_of(c, "eager").samples.at(block).late_id);
    seen.insert(*late);
  }
  CHECK(seen.size() == 8);
}

TEST_CASE("ids come again only after all have come, and random numbers are below their bound") {
  LateIds ids({5, 6, 7}, random_below);
  for (int round = 0; round < 4; ++round) {
    std::multiset<int32_t> drawn;
    for (int i = 0; i < 3; ++i) drawn.insert(ids.draw());
    CHECK(drawn == std::multiset<int32_t>{5, 6, 7});
  }
  std::set<uint64_t> numbers;
  for (int i = 0; i < 200; ++i) numbers.insert(random_below(3));
  CHECK(numbers == std::set<uint64_t>{0, 1, 2});
}

TEST_CASE("warm-ups and blocks share no late id, however often either draws") {
  Bench bench;
  bench.job.warmup = 3 * kVocab;
  Ids given;
  plant<NotesLateIds>(bench, given);
  const int32_t last = *engine_of(bench.run(), "kernel").samples.back().late_id;
  REQUIRE(given.size() > 3 * kVocab);
  CHECK(std::count(given.begin(), given.end(), last) == 1);
  for (const Ids& pool : {Ids{5, 6}, Ids{5, 6, 7}, Ids{5, 6, 7, 8}}) {
    LateIds blocks(pool, random_below);
    LateIds others = blocks.split();
    std::multiset<int32_t> drawn;
    for (size_t i = 0; i < pool.size() / 2; ++i) drawn.insert(others.draw());
    for (size_t i = pool.size() / 2; i < pool.size(); ++i) drawn.insert(blocks.draw());
    CHECK(drawn == std::multiset<int32_t>(pool.begin(), pool.end()));
    for (size_t i = 0; i < 9; ++i) CHECK(others.draw() != blocks.draw());
  }
  LateIds only({5}, random_below);
  LateIds same = only.split();
  CHECK((only.draw() == 5 && same.draw() == 5));
}

TEST_CASE("a prefill that is put off stands in the time to the first token") {
  Bench bench;
  bench.job.ids.clear();
  bench.job.n_prompt = 4;
  bench.job.n_gen = 0;
  plant<DefersPrefill>(bench, bench);
  const EngineReport e = engine_of(bench.run(), "kernel");
  INFO(reason_of(e));
  REQUIRE(e.ttft_ms.value.has_value());
  CHECK(*e.ttft_ms.value >= kPrefillMs);
  CHECK(*e.prefill_ms.value < kPrefillMs / 2);
  CHECK(e.ms_per_tok->min >= kPrefillMs / 4);
}

TEST_CASE("a run that leaves another state than one with logits fails its state receipt") {
  Bench sound;
  const CaseReport c = sound.run();
  for (const char* name : {"eager", "kernel"}) {
    const auto& samples = engine_of(c, name).samples;
    CHECK(samples.at(0).state_checked == "logits and KV rows");
    CHECK(samples.at(1).state_checked.empty());
  }
  Bench every;
  every.receipt_draw = 0;
  CHECK_FALSE(engine_of(every.run(), "kernel").samples.at(2).state_checked.empty());

  Bench coarse;
  plant<CoarseWithoutLogits>(coarse);
  const EngineReport e = engine_of(coarse.run(), "kernel");
  CHECK(e.verdict == Verdict::kIntegrity);
  CHECK(holds(reason_of(e), "block 0: state receipt: step 8: logit 3 is "));

  Bench rows;
  plant<OtherRowsWithoutLogits>(rows);
  const EngineReport other = engine_of(rows.run(), "kernel");
  CHECK(other.verdict == Verdict::kIntegrity);
  CHECK(holds(reason_of(other), "checksum"));
}

TEST_CASE("a state receipt asks of an engine what it can give") {
  Bench lacking;
  lacking.scripts["kernel"].snapshots = false;
  CHECK(engine_of(lacking.run(), "kernel").samples.at(0).state_checked == "logits");

  Bench loose;
  loose.scripts["kernel"].deterministic = false;
  plant<CoarseWithoutLogits>(loose);  // bits may differ, ids may not
  const EngineReport e = engine_of(loose.run(), "kernel");
  CHECK(e.verdict == Verdict::kPass);
  CHECK(e.samples.at(0).state_checked == "further ids");

  // Without logits the further ids are scored with the timed ones: decode 4 is the first sample's
  // state receipt, because the gate needs one decode less.
  for (const bool wrong : {false, true}) {
    Bench silent;
    silent.scripts["kernel"].logits = false;
    silent.scripts["kernel"].wrong = [wrong](int, int position) { return wrong && position == 15; };
    const EngineReport s = engine_of(silent.run(), "kernel");
    CHECK(s.verdict == (wrong ? Verdict::kFailToken : Verdict::kPass));
    if (wrong) CHECK(holds(reason_of(s), "position 15"));
  }
}

int count_of(const std::string& text, const std::string& part) {
  int count = 0;
  for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; ++at) ++count;
  return count;
}

TEST_CASE("an engine sets out again by snapshot, by going back, or by a new prefill") {
  struct Row {
    bool snapshots, rewinds, prefill;
    int prefills, starts;      // that its host sees in the blocks
    std::string start, timed;  // calls; a turn begins with | and ends with .
  };
  for (const Row& row :
       {Row{true, true, false, 1, 6, "restore poison ", "label | decode . audit "},
        Row{false, true, false, 1, 6, "rewind poison ", "label | decode . audit "},
        Row{false, false, false, 7, 7, "reset poison prefill ", "label | decode . audit "},
        Row{true, true, true, 4, 4, "reset poison ",
            "| prefill decode . decode restore poison decode audit "}}) {
    Bench bench;
    if (row.prefill) {
      bench.references.clear();
      bench.job.ids.clear();
      bench.job.n_prompt = 4;
      bench.job.n_gen = 0;
      for (const char* name : {"eager", "eager-head-fp32"}) bench.scripts[name].runner_up = 0.05f;
    }
    Script& script = bench.scripts["kernel"];
    script.snapshots = row.snapshots;
    script.rewinds = row.rewinds;
    bench.job.warmup = 2;
    std::string calls;
    bench.services.stop = [&] { return calls += "stop ", false; };
    bench.services.begin_timing = [&] {
      CHECK(holds(calls, "audit "));  // the gate's
      calls.clear();
    };
    bench.services.take_turn = [&](Engine& engine) {
      if (engine.capabilities().name == "kernel") calls += "| ";
    };
    bench.services.label_next = [&](Engine& engine, auto&) {
      if (engine.capabilities().name == "kernel") calls += "label ";
    };
    bench.services.end_turn = [&](Engine& engine) {
      if (engine.capabilities().name == "kernel") calls += ". ";
      return std::string();
    };
    const auto make = bench.services.make_engine;
    bench.services.make_engine = [&](const EngineRequest& request, const ModelWeights& weights) {
      if (request.name != "kernel") return make(request, weights);
      Script own = script;
      own.name = "kernel";
      own.called = [&](const char* call) { calls += std::string(call) + " "; };
      return std::unique_ptr<Engine>(std::make_unique<ScriptedEngine>(own));
    };
    const EngineReport e = engine_of(bench.run(), "kernel");
    INFO(row.start << ": " << reason_of(e) << "\n" << calls);
    CHECK(e.verdict == (row.prefill ? Verdict::kPassLive : Verdict::kPass));
    CHECK(count_of(calls, "prefill ") == row.prefills);
    // Two warm-ups, three samples and a state receipt, which a prefill test does not take.
    CHECK(count_of(calls, row.start) >= row.starts);
    CHECK(count_of(calls, "stop " + row.start + row.timed) == 3);
    const std::string warm_up = row.prefill ? "restore poison " : row.start;
    CHECK(count_of(calls, "stop " + warm_up + "decode ") == 2);
  }
}

TEST_CASE("an engine without late ids is timed, labelled, and never the faster one") {
  Bench bench;
  bench.job.blocks = bench.job.max_blocks = 8;
  bench.job.processes = 4;
  bench.scripts["kernel"].late_id = false;
  for (const char* name : {"eager", "kernel"}) bench.scripts[name].device = "cuda:0 Some GPU";
  bench.scripts["eager"].before = [&](int) { bench.pass_ms(2); };
  const CaseReport c = bench.run();
  const EngineReport& e = engine_of(c, "kernel");
  INFO(reason_of(e));
  CHECK(e.verdict == Verdict::kPass);
  for (const Sample& s : e.samples) CHECK_FALSE(s.late_id.has_value());
  CHECK_FALSE(takes_late_ids(e));
  REQUIRE(c.comparisons.size() == 1);
  CHECK(*c.comparisons[0].speedup.value > 2);
  CHECK(c.comparisons[0].label == "no late id");
  CHECK(c.comparisons[0].verdict == "INCONCLUSIVE");
  CHECK(holds(c.comparisons[0].verdict_reason, "kernel knows its last input id"));

  bench.scripts["kernel"].late_id = true;
  const CaseReport fair = bench.run();
  CHECK(fair.comparisons[0].label.empty());
  CHECK(fair.comparisons[0].verdict == "FASTER");
}

TEST_CASE("a wrong token outranks the failure that ended the engine, and both are told") {
  Bench bench;
  bench.scripts["kernel"].wrong = [](int decode, int position) {
    return decode == 4 && position == 2;
  };
  bench.scripts["kernel"].before = [](int decode) {
    if (decode == 8) throw Error(ErrorKind::kHang, "wait ran out");
  };
  // The state receipt compares with a run that is right: without it only the truth sees the token.
  bench.scripts["kernel"].logits = true;
  bench.scripts["kernel"].deterministic = false;
  const EngineReport e = engine_of(bench.run(), "kernel");
  CHECK(e.verdict == Verdict::kFailToken);
  REQUIRE(e.reasons.size() == 2);
  CHECK(holds(e.reasons[0], "position 2"));
  CHECK(holds(e.reasons[1], "wait ran out"));
}

TEST_CASE("equal runs of engines that round alike are scored once") {
  Bench bench;
  bench.job.blocks = bench.job.max_blocks = 40;  // of which a pool of 16 ids makes few paths
  int scored = 0;
  bench.scripts["eager-fp32"].before = [&](int) { ++scored; };
  const CaseReport c = bench.run();
  std::set<int32_t> late_ids;
  for (const Sample& s : engine_of(c, "kernel").samples) late_ids.insert(*s.late_id);
  CHECK(late_ids.size() < 20);
  CHECK(scored == static_cast<int>(2 * late_ids.size()));
}

TEST_CASE("times are withheld where Ctrl-C came before the truth") {
  Bench bench;
  bench.stop_after_samples = 4;
  const CaseReport c = bench.run();
  const EngineReport& e = engine_of(c, "eager");
  CHECK(e.verdict == Verdict::kPass);
  CHECK_FALSE(e.samples.at(0).valid);
  CHECK(e.times_withheld == kUnscored);
}

TEST_CASE("an id of a timed run is wrong only beyond the error of bf16 at its own step") {
  Bench bench;
  bench.references[0].token_only = true;
  bench.job.require_reference = true;
  // The truth's second choice is 0.15 below its first, and the run with an fp32 head errs by more.
  bench.scripts["eager-fp32"].runner_up = 9.85f;
  bench.scripts["eager-head-fp32"].runner_up = 9.6f;
  bool timing = false;
  bench.services.begin_timing = [&] { timing = true; };
  bench.scripts["kernel"].wrong = [&](int, int position) { return timing && position == 2; };
  struct Run final : ScriptedEngine {
    Run(const Script& script, int& others) : ScriptedEngine(script), open(++others) {}
    ~Run() override { --open; }
    int& open;
  };
  int open = 0, most = 0, heads = 0;
  bench.services.make_engine = [&](const EngineRequest& request,
                                   const ModelWeights&) -> std::unique_ptr<Engine> {
    const Script& script = bench.scripts[request.name];
    const bool head = request.name == "eager-head-fp32";
    if (!timing || (!head && request.name != "eager-fp32"))
      return std::make_unique<ScriptedEngine>(script);
    auto run = std::make_unique<Run>(script, open);
    most = std::max(most, open);
    heads += head ? 1 : 0;
    return run;
  };
  const CaseReport c = bench.run();
  const EngineReport& e = engine_of(c, "kernel");
  INFO(reason_of(e) << (c.reasons.empty() ? "" : c.reasons[0]));
  CHECK(e.verdict == Verdict::kPass);
  CHECK(heads > 0);
  CHECK(most == 1);  // memory is stated for one of them
  CHECK(open == 0);
  bench.scripts["eager-head-fp32"].runner_up = 9.84f;
  timing = false;
  CHECK(engine_of(bench.run(), "kernel").verdict == Verdict::kFailToken);
}

}  // namespace
}  // namespace mkbench::testing
