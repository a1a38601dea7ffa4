// What is kept of wrong ids of timed runs, and which of their failures count; blocks that are recorded alone.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "harness/flow/interrupt.h"
#include "harness/flow/late_ids.h"
#include "harness/flow/recorder.h"
#include "harness/flow/state_receipt.h"
#include "harness/flow/timed_truth.h"
#include "references/base/error.h"
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
  CHECK(e.parity->localised == step.localised);
  CHECK(e.parity->diagnosis.text == "not diagnosed: this truth tries no bugs");
  const std::vector<ErrorAt>& errors = e.parity->error_by_position;
  REQUIRE(errors.size() == 8);
  CHECK((errors.back().at == last && errors.back().error > 1 && errors[6].error == 0));
  // Another case that takes the verdict of the prompts over does not tell this step again.
  const std::optional<JudgedCase> taken = parity_memo(c);
  REQUIRE(taken);
  const ParityReport& memo = taken->engines.at("kernel").parity;
  CHECK((!memo.failed_step && memo.localised.empty() && memo.error_by_position.empty()));
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

// With forced ids and logits it emits the second-best id at one step, and shows the same logits.
struct OtherIdBesideLogits final : ScriptedEngine {
  OtherIdBesideLogits(const Script& script, int at) : ScriptedEngine(script), position_of_it(at) {}
  Ids decode(int n, const int32_t* forced, float* logits_out) override {
    const int first = position();
    Ids ids = ScriptedEngine::decode(n, forced, logits_out);
    const int at = position_of_it - first;
    if (forced != nullptr && logits_out != nullptr && at >= 0 && at < n)
      ids[static_cast<size_t>(at)] = (ids[static_cast<size_t>(at)] + 1) % kVocab;
    return ids;
  }
  int position_of_it;
};

TEST_CASE("a state receipt compares the ids of a run that shows its logits") {
  struct Row {
    int at;
    bool deterministic;
    const char* problem;
    float runner_up = 0;
  };
  // Four steps of bf16 at the largest logit, 10, are 0.15625.
  for (const Row& row :
       {Row{-1, true, ""}, Row{2, true, "step 2: id "}, Row{2, false, ""},
        Row{9, true, "step 9: id "}, Row{9, false, "step 9: id "}, Row{9, false, "", 9.84375f},
        Row{9, false, "step 9: id ", 9.84f}, Row{9, true, "step 9: id ", 9.99f}}) {
    Script script;
    script.deterministic = row.deterministic;
    script.runner_up = row.runner_up;
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
    if (holds(row.problem, "9")) CHECK(holds(receipt.problem, "after the timed run"));
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

constexpr RecordPlan kPlan{.tokens = 4, .blocks = 3, .warmup = 2};

TEST_CASE("recorded blocks hold each engine once, by ms a token, in a turn of its own") {
  Bench bench;
  bench.scripts["eager"].before = [&](int) { bench.pass_ms(8); };
  bench.scripts["kernel"].before = [&](int) { bench.pass_ms(2); };
  std::string turns;
  const auto note = [&](const Engine& engine, char turn) {
    if (engine.capabilities().name == "kernel") turns += turn;
  };
  bench.services.take_turn = [&](Engine& engine) { note(engine, '|'); };
  bench.services.end_turn = [&](Engine& engine) { return note(engine, '.'), std::string(); };
  std::vector<std::string> expected;
  bench.services.expect = [&](const auto& names) { expected = names; };
  std::vector<std::string> ended;
  bench.services.end_process = [&](const std::string& name) { ended.push_back(name); };
  const auto times = record_blocks(bench.job, bench.services, kPlan);
  std::sort(expected.begin(), expected.end());  // they start in a drawn order
  CHECK(expected == std::vector<std::string>{"eager", "kernel"});
  CHECK(ended == expected);
  REQUIRE(times.size() == 2);
  for (const auto& [name, ms] : {std::pair("eager", 2.0), {"kernel", 0.5}}) {
    REQUIRE(times.at(name).size() == 3);
    for (const double time : times.at(name)) CHECK(time == Approx(ms).epsilon(0.01));
  }
  CHECK(turns == "|.|.|.|.|.|.");  // the prefill, two warm-ups, three blocks
}

TEST_CASE("recording ends by ids that differ, doubt that stays, and an engine without late ids") {
  struct Row {
    const char* what;
    bool closed_form;
    std::function<void(Bench&)> change;
    std::optional<ErrorKind> kind;
    const char* text;
  };
  const auto wrong = [](const std::vector<const char*>& names) {
    return [=](Bench& bench) {
      const int last = bench.job.depth + kPlan.tokens - 1;
      for (const char* name : names)
        bench.scripts[name].wrong = [last](int, int position) { return position == last; };
    };
  };
  const auto doubts = [](int most) {
    return [=](Bench& bench) {
      bench.services.end_turn = [seen = 0, most](Engine& engine) mutable {
        const bool doubted = engine.capabilities().name == "kernel" && ++seen > 1;
        return std::string(doubted && seen <= 1 + most ? "left work" : "");
      };
    };
  };
  const auto none = [](Bench&) {};
  const auto early = [](Bench& bench) { bench.scripts["kernel"].late_id = false; };
  const auto stopped = [](Bench& bench) { bench.services.stop = [] { return true; }; };
  const std::vector<Row> rows = {
      {"sound", false, none, {}, ""},
      {"sound, closed form", true, none, {}, ""},
      {"one", false, wrong({"kernel"}), ErrorKind::kIntegrity, "4 ids came back; wanted 4, equal"},
      {"both alike", false, wrong({"eager", "kernel"}), {}, ""},
      {"both, closed form", true, wrong({"eager", "kernel"}), ErrorKind::kIntegrity, "wanted 4"},
      {"four doubts", false, doubts(4), {}, ""},
      {"five doubts", false, doubts(5), ErrorKind::kIntegrity, "kernel: left work, 5 times in a"},
      {"no late id", false, early, ErrorKind::kRuntime, "kernel: it takes no late id"},
      {"stopped", false, stopped, {}, "interrupted"}};
  for (const Row& row : rows) {
    Bench bench, analytic = closed_form_bench();
    Bench& chosen = row.closed_form ? analytic : bench;
    row.change(chosen);
    std::string text;
    std::optional<ErrorKind> kind;
    try {
      record_blocks(chosen.job, chosen.services, kPlan);
    } catch (const Error& error) {
      text = error.what();
      kind = error.kind();
    } catch (const Interrupted&) {
      text = "interrupted";
    }
    INFO(row.what << ": " << text);
    CHECK(kind == row.kind);
    CHECK(holds(text, row.text));
    CHECK(text.empty() == std::string_view(row.text).empty());
  }
}

TEST_CASE("live prompts have the closed form's ids from the depth on at which it begins") {
  const Bench bench = closed_form_bench();
  CaseJob other = bench.job;
  other.model = named("tiny");
  const auto analytic = live_parity_prompts(bench.job, kQwen3_0_6B, {});
  const auto random = live_parity_prompts(other, kQwen3_0_6B, {});
  REQUIRE((analytic.size() == 4 && random.size() == 4));
  for (size_t i = 0; i < 4; ++i) {
    CHECK(analytic[i].size() == random[i].size());
    CHECK((analytic[i] == random[i]) == (static_cast<int>(analytic[i].size()) <= bench.job.depth));
  }
  ModelShape llama = kQwen3_0_6B;
  llama.qk_norm = false;
  const size_t least = static_cast<size_t>(synthetic_min_depth("short"));
  using Row = std::pair<const CaseJob*, size_t>;
  for (const auto& [job, more] : {Row{&bench.job, least}, Row{&other, 0}}) {
    const auto prompts = live_parity_prompts(*job, llama, {});
    for (size_t i = 0; i < 4; ++i) CHECK(prompts.at(i).size() == random[i].size() + more);
  }
}

}  // namespace
}  // namespace mkbench::testing
