// What is kept of wrong ids of timed runs, and which of their failures count.
#include <algorithm>
#include <string>
#include <vector>

#include "harness/flow/late_ids.h"
#include "harness/flow/state_receipt.h"
#include "references/model_row.h"
#include "references/synthetic.h"
#include "tests/support/case_bench.h"
#include "tests/support/catch2.h"

namespace mkbench::testing {
namespace {

// A case whose timed ids follow the closed form; its engines have passed parity before.
Bench closed_form_bench() {
  const std::optional<JudgedCase> judged = parity_memo(Bench().run());
  REQUIRE(judged);
  Bench bench;
  bench.job.judged = judged;
  bench.job.model = named("synthetic:short");
  bench.job.ids.clear();
  bench.job.depth = synthetic_min_depth("short");
  bench.services.config = [](const std::string&) {
    ModelConfig config;
    config.shape = kQwen3_0_6B;
    config.shape.layers = 0;
    config.max_positions = 256;
    return config;
  };
  bench.services.load = [config = bench.services.config](const std::string& model, int) {
    ModelWeights weights;
    weights.name = model;
    weights.sha256 = "w1";
    weights.lagset = "short";
    weights.config = config(model);
    return weights;
  };
  for (const char* name : {"eager", "kernel", "eager-fp32", "eager-head-fp32"}) {
    bench.scripts[name].vocab = kQwen3_0_6B.vocab;
    bench.scripts[name].rule = [](const Ids& ids) {
      return synthetic_continuation(ids, "short", 1).front();
    };
  }
  return bench;
}

TEST_CASE("a timed id that is not the closed form's fails, and its step can be repeated") {
  CHECK(engine_of(closed_form_bench().run(), "kernel").verdict == Verdict::kPass);
  Bench bench = closed_form_bench();
  const int last = bench.job.depth + bench.job.n_gen - 1;
  const auto wrong = [=](int, int position) { return position == last; };
  bench.scripts["kernel"].wrong = wrong;
  const CaseReport c = bench.run();
  const EngineReport& e = engine_of(c, "kernel");
  INFO(reason_of(e));
  CHECK(e.verdict == Verdict::kFailToken);
  CHECK(holds(reason_of(e), "block 0: receipt: token 7 is "));
  CHECK_FALSE(engine_of(c, "eager").parity->failed_step);
  REQUIRE(e.parity->failed_step);
  const FailedStep& step = *e.parity->failed_step;
  CHECK((step.model == "synthetic:short" && step.position == last && step.free_tokens == 8));
  CHECK(step.prompt_ids.size() == static_cast<size_t>(bench.job.depth) + 1);
  CHECK(step.late_id == e.samples.at(0).late_id);
  CHECK(step.forced_ids == Ids(e.samples[0].ids.begin(), e.samples[0].ids.end() - 1));
  CHECK(step.found == e.samples[0].ids.back());
  Ids ids = step.prompt_ids;
  ids.back() = *step.late_id;
  CHECK(step.expected == synthetic_continuation(ids, "short", 8).back());
  CHECK(step.expected_top.at(0).id == step.expected);
  CHECK(step.found_top.at(0).id == step.found);
  for (const bool sound : {false, true}) {
    Bench again = closed_form_bench();
    if (!sound) again.scripts["kernel"].wrong = wrong;
    again.job.judged.reset();
    again.job.only = step;
    const EngineReport repeated = engine_of(again.run(), "kernel");
    INFO(reason_of(repeated));
    CHECK(repeated.verdict == (sound ? Verdict::kPass : Verdict::kFailToken));
  }
}

TEST_CASE("a step that cannot be repeated is kept as the clock's run has shown it") {
  Bench bench;
  bench.scripts["kernel"].wrong = [](int decode, int position) {
    return decode == 8 && position == 2;
  };
  bench.services.make_engine = [make = bench.services.make_engine, made = 0](
                                   const EngineRequest& request,
                                   const ModelWeights& weights) mutable {
    if (request.name == "kernel" && ++made == 2)
      throw Error(ErrorKind::kEnvUnfit, "no memory is left");
    return make(request, weights);
  };
  const EngineReport e = engine_of(bench.run(), "kernel");
  CHECK(e.verdict == Verdict::kFailToken);
  REQUIRE(e.parity->failed_step);
  CHECK(e.parity->failed_step->found == e.samples[1].ids[2]);
  CHECK(e.parity->failed_step->expected != e.parity->failed_step->found);
  CHECK(e.parity->failed_step->localised == "not localised: no memory is left");
  CHECK(e.parity->failed_step->engine == "kernel");
}

// At position 5 it shows logits that say another id.
struct OtherLogits final : ScriptedEngine {
  using ScriptedEngine::ScriptedEngine;
  Ids decode(int n, const int32_t* forced, float* logits_out) override {
    const int at = 5 - position();
    const Ids ids = ScriptedEngine::decode(n, forced, logits_out);
    if (logits_out != nullptr && at >= 0 && at < n)
      logits_out[at * kVocab + (ids[static_cast<size_t>(at)] + 3) % kVocab] = 20;
    return ids;
  }
};

// At position 5 it emits another id where nobody asks for logits.
struct OtherIdWithoutLogits final : ScriptedEngine {
  using ScriptedEngine::ScriptedEngine;
  Ids decode(int n, const int32_t* forced, float* logits_out) override {
    const int at = 5 - position();
    Ids ids = ScriptedEngine::decode(n, forced, logits_out);
    if (logits_out == nullptr && at >= 0 && at < n) ids[static_cast<size_t>(at)] ^= 1;
    return ids;
  }
};

template <typename Faulty>
Bench with_kernel() {
  Bench bench;
  bench.services.make_engine = [make = bench.services.make_engine](const EngineRequest& request,
                                                                   const ModelWeights& weights) {
    if (request.name != "kernel") return make(request, weights);
    Script script;
    script.name = "kernel";
    return std::unique_ptr<Engine>(std::make_unique<Faulty>(script));
  };
  return bench;
}

// The step that `parity --only` repeats fails as the gate did.
template <typename Faulty>
FailedStep repeated_as(Verdict verdict) {
  const EngineReport e = engine_of(with_kernel<Faulty>().run(), "kernel");
  INFO(reason_of(e));
  CHECK(e.verdict == verdict);
  REQUIRE(e.parity->failed_step);
  Bench again = with_kernel<Faulty>();
  again.job.only = e.parity->failed_step;
  CHECK(engine_of(again.run(), "kernel").verdict == verdict);
  Bench sound;
  sound.job.only = e.parity->failed_step;
  CHECK(engine_of(sound.run(), "kernel").verdict == Verdict::kPass);
  return *e.parity->failed_step;
}

TEST_CASE("an id that its own logits do not say, and one without logits, can be repeated") {
  const FailedStep own = repeated_as<OtherLogits>(Verdict::kFailSelf);
  CHECK((own.position == 5 && own.free_tokens == 0 && own.found == own.expected));
  CHECK(own.found_top.at(0).id == (own.found + 3) % kVocab);
  const FailedStep free = repeated_as<OtherIdWithoutLogits>(Verdict::kFailToken);
  CHECK((free.position == 5 && free.free_tokens == testing::kSteps));
  CHECK(free.found == (free.expected ^ 1));
  CHECK(free.found_top.at(0).id == free.expected);
  CHECK(free.command.empty());  // by its name the step would be repeated with logits
  CHECK_FALSE(own.command.empty());
}

TEST_CASE("a failure that clocks do not explain is not repeated away with them") {
  Bench bench;  // the first sample is decode 4; a repeat, decode 5, would be right
  bench.scripts["kernel"].no_launch = [](int decode) { return decode == 4; };
  bench.scripts["kernel"].event_ms = [](int decode) { return decode == 4 ? 1000.0 : 0.0; };
  const EngineReport e = engine_of(bench.run(), "kernel");
  CHECK(e.verdict == Verdict::kIntegrity);
  CHECK(holds(reason_of(e), "block 0: launch counter: 0 launches"));
  CHECK(e.samples.at(0).repeats == 0);
}

TEST_CASE("D of published ids, which have no margins, excuses no timed id") {
  Bench bench;
  GreedyReference published = bench.references[0];
  published.token_only = true;
  published.pairwise_d = 100;
  bench.references.push_back(published);
  CHECK(engine_of(bench.run(), "kernel").verdict == Verdict::kPass);
  bool timing = false;
  bench.services.begin_timing = [&] { timing = true; };
  bench.scripts["kernel"].wrong = [&](int, int position) { return timing && position == 2; };
  const EngineReport e = engine_of(bench.run(), "kernel");
  INFO(reason_of(e));
  CHECK(e.verdict == Verdict::kFailToken);
  REQUIRE(e.parity->failed_step);
  CHECK(e.parity->failed_step->pairwise_d == bench.references[0].pairwise_d);
}

// With forced ids and logits it emits another id at one step, and shows the same logits.
struct OtherIdBesideLogits final : ScriptedEngine {
  OtherIdBesideLogits(const Script& script, int at) : ScriptedEngine(script), position_of_it(at) {}
  Ids decode(int n, const int32_t* forced, float* logits_out) override {
    const int first = position();
    Ids ids = ScriptedEngine::decode(n, forced, logits_out);
    const int at = position_of_it - first;
    if (forced != nullptr && logits_out != nullptr && at >= 0 && at < n)
      ids[static_cast<size_t>(at)] ^= 1;
    return ids;
  }
  int position_of_it;
};

TEST_CASE("a state receipt compares the ids of a run that shows its logits") {
  struct Row {
    int at;
    bool deterministic;
    const char* problem;
  };
  for (const Row& row : {Row{-1, true, ""}, Row{2, true, "step 2: id "}, Row{2, false, ""},
                         Row{9, true, "step 9: id "}, Row{9, false, "step 9: id "}}) {
    Script script;
    script.deterministic = row.deterministic;
    OtherIdBesideLogits engine(script, row.at);
    const Ids prompt = {3};
    engine.prefill(prompt);
    const Snapshot start = engine.save();
    const Ids ids = engine.ScriptedEngine::decode(6, nullptr, nullptr);
    const StateReceipt receipt =
        take_state_receipt(engine, kVocab, ids, [&] { engine.restore(start); });
    INFO(row.at << row.deterministic << receipt.problem);
    CHECK(receipt.problem.empty() == std::string_view(row.problem).empty());
    CHECK(holds(receipt.problem, row.problem));
    if (row.at == 2 && row.deterministic) CHECK(holds(receipt.problem, "in the timed run"));
    if (row.at == 9) CHECK(holds(receipt.problem, "after the timed run"));
    CHECK(receipt.repeats);
  }
}

// Adds to the logits that it shows how often it has shown some: no run repeats another.
class OtherLogitsEachTime : public ScriptedEngine {
 public:
  using ScriptedEngine::ScriptedEngine;
  Ids decode(int n, const int32_t* forced, float* logits_out) override {
    Ids ids = ScriptedEngine::decode(n, forced, logits_out);
    if (logits_out != nullptr) logits_out[0] += static_cast<float>(++shown_);
    return ids;
  }

 private:
  int shown_ = 0;
};

TEST_CASE("an engine that does not repeat itself is not accused of another state") {
  for (const bool deterministic : {true, false}) {
    Script script;
    script.deterministic = deterministic;
    OtherLogitsEachTime engine(script);
    engine.prefill(Ids{3});
    const Snapshot start = engine.save();
    const Ids ids = engine.decode(6, nullptr, nullptr);
    const StateReceipt receipt =
        take_state_receipt(engine, kVocab, ids, [&] { engine.restore(start); });
    INFO(receipt.problem);
    CHECK(receipt.problem.empty() == !deterministic);
    CHECK(receipt.repeats == !deterministic);
    if (deterministic) {
      CHECK(holds(receipt.problem, "two runs with logits differ at step 0"));
      CHECK(!holds(receipt.problem, "another state"));
    }
  }
}

}  // namespace
}  // namespace mkbench::testing
