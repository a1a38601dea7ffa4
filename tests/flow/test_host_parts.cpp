// Parts of the flow of a case, tested one by one: the truth of timed tokens, progress, names of references,
// memory of the sweep.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "harness/flow/text.h"
#include "harness/flow/timed_truth.h"
#include "harness/flow/watch.h"
#include "references/base/error.h"
#include "references/model_row.h"
#include "references/synthetic.h"
#include "tests/support/case_bench.h"
#include "tests/support/catch2.h"

namespace mkbench::testing {
namespace {

TEST_CASE("the closed form of timed tokens needs a state for every id and the depth of its lags") {
  ModelWeights weights;
  weights.lagset = "short";
  weights.config.shape.vocab = kQwen3_0_6B.vocab;
  CaseJob job;
  const auto closed = [&] { return find_timed_truth(job, weights); };
  job.depth = synthetic_min_depth("short");
  const TimedTruth truth = closed();
  CHECK(truth.check() == std::string("closed form"));
  CHECK(truth.late_ids.size() == 1 << 17);  // those that have a state
  const int32_t late = truth.late_ids[1234];
  std::vector<int32_t> prompt = truth.prompt;
  prompt.back() = late;
  CHECK(truth.ending_with(late) == prompt);
  CHECK(truth.expected(late, 4) == synthetic_continuation(prompt, "short", 4));
  // The prompt follows a seed of its own.
  job.prompt_seed = 7;
  CHECK(closed().prompt != truth.prompt);
  --job.depth;
  CHECK(closed().lagset.empty());
  CHECK_FALSE(closed().expected(late, 4).has_value());
  CHECK(closed().late_ids.size() == static_cast<size_t>(kQwen3_0_6B.vocab));
  int32_t stateless = 0;
  while (synthetic_state(stateless) >= 0) ++stateless;
  job.ids = synthetic_prompt(20, 1);
  job.ids.back() = stateless;  // a late id takes its place
  CHECK(closed().lagset == "short");
  job.ids[5] = stateless;
  CHECK(closed().lagset.empty());
}

TEST_CASE("timed prompts of a byte-level vocabulary are printable, late ids as well") {
  ModelWeights weights;
  weights.config.shape = find_model("tiny")->shape;
  CaseJob job;
  job.depth = 200;
  const TimedTruth truth = find_timed_truth(job, weights);
  CHECK(truth.prompt.size() == 201);
  CHECK(truth.check() == std::string("late ids, scored by the truth"));
  CHECK(truth.late_ids.size() == 95);
  for (const auto* ids : {&truth.prompt, &truth.late_ids}) {
    CHECK(*std::min_element(ids->begin(), ids->end()) == ' ');
    CHECK(*std::max_element(ids->begin(), ids->end()) == '~');
  }
}

TEST_CASE("a prompt id outside the vocabulary is refused") {
  ModelShape shape;
  shape.vocab = kVocab;
  CaseJob job;
  job.ids = {0, kVocab - 1};
  CHECK(timed_prompt(job, shape) == job.ids);
  for (const int32_t bad : {-1, kVocab}) {
    job.ids = {0, bad};
    CHECK_THROWS_WITH(timed_prompt(job, shape), ContainsText("id " + std::to_string(bad)));
  }
}

TEST_CASE("the truth confirms a near tie wherever it lies in a chunk of 64, and no other id") {
  Script script;
  script.runner_up = 9.95F;  // of the second choice, 0.05 below the best
  for (const size_t at : {0, 63, 64, 66, 69}) {
    std::vector<int32_t> path;
    const auto leave = [&](int by) {
      path.clear();
      for (int t = 0; t < 70; ++t) {
        const int32_t id = scripted_token(t > 0 ? path.back() : 3, t, kVocab);
        path.push_back((id + (t == static_cast<int>(at) ? by : 0)) % kVocab);
      }
    };
    const auto confirmed = [&](double d, bool logits_bf16) {
      ScriptedEngine truth(script);
      truth.prefill(std::vector<int32_t>{3});
      return confirm_path(truth, path, kVocab, d, logits_bf16);
    };
    leave(1);
    CHECK(confirmed(0.1, false).text.empty());
    CHECK(confirmed(0.01, true).text.empty());  // one bf16 step at 10 is 0.0625
    const WrongId wrong = confirmed(0.01, false);
    CHECK(holds(wrong.text, fmt::format("position {}: found {}, wanted {} (gap 0.05, tau ", at,
                                        path[at], wrong.expected)));
    CHECK(wrong.step == at);
    CHECK(wrong.expected ==
          scripted_token(at > 0 ? path[at - 1] : 3, static_cast<int>(at), kVocab));
    leave(6);
    CHECK(confirmed(0.1, false).step == at);
  }
}

TEST_CASE("a new stage drops the count of the last one, and position 0 is reported") {
  std::vector<StageProgress> messages;
  EventSink sink([&](const CaseEvent& m) { messages.push_back(std::get<StageProgress>(m)); });
  ScriptedEngine engine(Script{});
  {
    ProgressWatch watch(sink);
    watch.begin("a", "x", nullptr);
    watch.count(1, 3);
    watch.begin("b", "x", &engine);
    REQUIRE(messages.size() >= 3);
    CHECK((messages[1].done == 1 && messages[1].total == 3));
    CHECK((messages[2].stage == "b" && !messages[2].done));
    CHECK_FALSE(messages[2].position.has_value());
    watch.look();
    watch.end();
  }
  REQUIRE(messages.size() == 4);
  CHECK(messages[3].position == 0);
}

// A doubt about the kernel's first sample: one costs a repetition, and one that stays the verdict.
void check_taken_again(Bench& bench, bool once, const char* doubt) {
  const CaseReport c = bench.run();
  const EngineReport& kernel = engine_of(c, "kernel");
  CHECK(kernel.verdict == (once ? Verdict::kPass : Verdict::kIntegrity));
  REQUIRE_FALSE(kernel.samples.empty());
  CHECK(kernel.samples[0].repeats == (once ? 1 : 2));
  if (!once) CHECK(holds(reason_of(kernel), doubt));
  CHECK(engine_of(c, "eager").verdict == Verdict::kPass);
}

TEST_CASE(
    "a clock that is doubted repeats the sample; a doubt that stays is an integrity failure") {
  for (const int doubts : {1, 1000}) {
    Bench bench;
    int left = doubts;
    bench.services.timed = [&](Engine& engine, const std::function<void()>& call) {
      TimedCall timed = time_call(bench.services.now, call);
      if (engine.capabilities().name == "kernel" && left-- > 0) timed.doubt = "clocks disagree: 9";
      return timed;
    };
    check_taken_again(bench, doubts == 1, "clocks disagree: 9");
  }
}

TEST_CASE("an engine that leaves work behind leaves the case, with the other one's samples kept") {
  Bench bench;
  bench.job.time_anyway = true;
  int turns = 0;
  bench.services.end_turn = [&](Engine& engine) {
    // Turns 1 and 2 end the gate and the warm-up.
    if (engine.capabilities().name == "kernel" && ++turns == 4)
      throw Error(ErrorKind::kIntegrity, "kernel left work on its device");
    return std::string();
  };
  const CaseReport c = bench.run();
  CHECK(engine_of(c, "kernel").verdict == Verdict::kIntegrity);
  CHECK(engine_of(c, "kernel").samples.size() == 1);
  CHECK(engine_of(c, "eager").samples.size() == 3);
}

TEST_CASE("a time after which the card was busy for a moment is dropped and taken again") {
  for (const int busy : {1, 3}) {
    Bench bench;
    int turns = 0;
    bench.services.end_turn = [&](Engine& engine) {
      // Turns 1 and 2 end the gate and the warm-up.
      const bool timed = engine.capabilities().name == "kernel" && ++turns > 2;
      return std::string(timed && turns <= 2 + busy ? "4 of 5 flushes waited" : "");
    };
    check_taken_again(bench, busy == 1, "4 of 5 flushes waited");
  }
}

TEST_CASE("times and starts of samples are those of the clock beside the engine") {
  Bench bench;
  double begin = 5000;
  bench.services.timed = [&](Engine&, const std::function<void()>& call) {
    call();
    begin += 100;
    return TimedCall{.begin_ms = begin, .ms = 16, .slack_ms = 3};
  };
  const CaseReport c = bench.run();
  const EngineReport& kernel = engine_of(c, "kernel");
  REQUIRE(kernel.samples.size() == 3);
  CHECK(kernel.samples[0].times.host_ms == 16);
  CHECK(engine_of(c, "eager").samples[0].start_ms == 0);  // the first timed call of the case
  CHECK(kernel.samples[0].start_ms == 100);
}

TEST_CASE("blocks are added as long as an interval is too wide, and no longer") {
  const auto none = [](Bench&) {};
  const auto uneven = [](const char* name) {
    return [=](Bench& bench) {
      if (name == std::string(kCeilingName)) bench.add_ceiling();
      bench.scripts[name].before = [&bench](int decode) { bench.pass_ms(20 + 50 * (decode % 2)); };
    };
  };
  struct Row {
    double target;
    size_t samples;
    std::function<void(Bench&)> change;
    std::function<void(Bench&)> further;
  };
  const auto no_baseline = [](Bench& bench) { bench.job.engines[0].yardstick = false; };
  const auto dies = [](const char* name) {
    return [=](Bench& bench) {
      bench.scripts[name].before = [&bench](int decode) {
        bench.pass_ms(20 + 50 * (decode % 2));
        if (decode == 12) throw Error(ErrorKind::kHang, "no progress");
      };
    };
  };
  int number = 0;
  for (const Row& row :
       {Row{1e-12, 12, uneven("kernel"), none}, Row{0, 8, uneven("kernel"), none},
        Row{0.2, 8, none, none}, Row{0.2, 12, uneven("kernel"), none},
        Row{0.2, 12, uneven("eager"), none}, Row{0.2, 12, uneven("kernel"), no_baseline},
        Row{0.2, 8, uneven("eager"), no_baseline}, Row{0.2, 8, uneven(kCeilingName), none},
        Row{0.2, 8, uneven(kCeilingName), no_baseline}, Row{0.2, 8, dies("eager"), none}}) {
    Bench bench;
    bench.job.blocks = 8;
    bench.job.max_blocks = 12;
    bench.job.target_rel_ci = row.target;
    for (const char* name : {"eager", "kernel"})
      bench.scripts[name].before = [&](int decode) { bench.pass_ms(decode % 2 == 0 ? 20 : 20.1); };
    row.change(bench);
    row.further(bench);
    INFO(++number);
    CHECK(engine_of(bench.run(), "kernel").samples.size() == row.samples);
  }
}

// A scripted engine one of whose KV rows is NaN.
class RowEngine : public ScriptedEngine {
 public:
  RowEngine(Script script, int nan_row) : ScriptedEngine(std::move(script)), nan_row_(nan_row) {}
  std::optional<std::vector<float>> kv_row(int, int row) override {
    return std::vector<float>{row == nan_row_ ? std::nanf("") : 1.0F};
  }

 private:
  int nan_row_;
};

// The stages that a run of the case tells of, with their counts.
std::string stages_of(Bench& bench) {
  bench.run();
  std::string told;
  for (const CaseEvent& event : bench.messages) {
    const auto* at = std::get_if<StageProgress>(&event);
    if (at == nullptr || at->position) continue;
    told += at->done ? fmt::format(" {}/{}", *at->done, *at->total)
                     : fmt::format("; {} {}", at->stage, at->engine);
  }
  return told;
}

TEST_CASE("the stages of a case are told in their order, with their counts") {
  Bench bench;
  bench.add_ceiling(20);
  CHECK(stages_of(bench) ==
        "; loading scripted ; upload eager; parity eager 12/12; parity eager-head-fp32 12/12"
        "; upload kernel; parity kernel 12/12; upload ceiling; prefill kernel; warm-up kernel 1/1"
        "; prefill ceiling; warm-up ceiling 1/1; prefill eager; warm-up eager 1/1"
        "; timing eager 1/3; timing kernel 1/3; timing ceiling 1/3; timing ceiling 2/3"
        "; timing kernel 2/3; timing eager 2/3; timing ceiling 3/3; timing kernel 3/3"
        "; timing eager 3/3; scoring eager-fp32; scoring eager-fp32 0/6 1/6 2/6 3/6 4/6 5/6");
  Bench profiled;
  profiled.job.ablations = profiled.has_ablations = true;
  profiled.scripts["kernel"].skips = true;
  CHECK(holds(stages_of(profiled),
              "; ablations without waits kernel; ablations without loads kernel; scoring"));
  // A wrong step is localised right after it was found: in the gate, under the clock, in the sweep.
  Bench gate, timed, swept;
  gate.job.time_anyway = true;
  gate.scripts["kernel"].wrong = [](int, int position) { return position == 5; };
  CHECK(
      holds(stages_of(gate),
            "; parity kernel 12/12; localising kernel; looking for the bug kernel; prefill eager"));
  timed.scripts["kernel"].wrong = [](int decode, int) { return decode == 8; };
  CHECK(holds(stages_of(timed), "5/6; upload kernel; localising kernel"));
  swept.job.whole_parity = true;
  swept.job.n_gen = swept.job.blocks = 0;
  swept.job.ids.clear();
  swept.scripts["eager-head-fp32"].runner_up = 0.05F;
  swept.scripts["kernel"].wrong = [](int, int position) { return position == 126; };
  const std::string told = stages_of(swept);
  size_t at = 0;
  for (const char* stage :
       {"repeats kernel", "isolation kernel", "pace kernel", "sweep kernel",
        "truth of the cache lengths eager-fp32", "cache lengths 1-256", "localising kernel"}) {
    INFO(told << "\nwanted after the stages before it: " << stage);
    at = told.find(stage, at);
    REQUIRE(at != std::string::npos);
  }
}

TEST_CASE("`parity` checks every KV row, `run` only the rows at the boundaries") {
  for (const bool whole : {true, false}) {
    Bench bench;
    bench.job.whole_parity = whole;
    if (whole) bench.job.n_gen = bench.job.blocks = 0;
    bench.scripts["eager-head-fp32"].runner_up = 0.05F;
    bench.services.config = [config = bench.services.config](const std::string& model) {
      ModelConfig with_layers = config(model);
      with_layers.shape.layers = 1;
      return with_layers;
    };
    bench.services.make_engine = [&](const EngineRequest& request, const ModelWeights&) {
      Script script = bench.scripts[request.name];
      script.name = request.name;
      return std::make_unique<RowEngine>(script, request.name == "kernel" ? kSteps / 2 : -1);
    };
    const EngineReport kernel = engine_of(bench.run(), "kernel");
    INFO(reason_of(kernel));
    CHECK(kernel.verdict == (whole ? Verdict::kFailFidelity : Verdict::kPass));
  }
}

TEST_CASE("the sweep goes as far as memory allows, and to the end where free memory is not known") {
  for (const auto& [free, longest] : {std::pair{500, 128}, {0, 256}}) {
    Bench bench;
    bench.job.whole_parity = true;
    bench.job.n_gen = bench.job.blocks = 0;
    bench.job.ids.clear();
    bench.scripts["eager-head-fp32"].runner_up = 0.05F;
    bench.services.bytes = [](const EngineRequest& request, const ModelConfig&) {
      return int64_t{request.max_context};
    };
    bench.services.free_bytes = [free = free] { return int64_t{free}; };
    const EngineReport kernel = engine_of(bench.run(), "kernel");
    REQUIRE(kernel.parity.has_value());
    CHECK(kernel.parity->lengths_judged == longest);
    CHECK(kernel.verdict == (longest == 256 ? Verdict::kPass : Verdict::kIncomplete));
    if (longest == 128) {
      CHECK(reason_of(kernel) ==
            "128 of the 256 cache lengths that a pass needs; memory has room for a cache of 128");
    }
  }
}

TEST_CASE("engines that were not reached say so, and why; the others keep what they have") {
  for (const bool interrupted : {false, true}) {
    Bench bench;
    bench.job.engines.push_back({.name = "plain", .asked = "plain", .candidate = true});
    CaseCollector collector(bench.job);
    collector.take(VerdictGiven{"eager", Verdict::kPass, ""});
    collector.take(VerdictGiven{"plain", Verdict::kSkipped, "has no code"});
    collector.finish(interrupted);
    CHECK(collector.interrupted() == interrupted);
    const CaseReport& c = collector.report();
    CHECK(engine_of(c, "eager").reasons.empty());
    CHECK(engine_of(c, "plain").reasons == std::vector<std::string>{"has no code"});
    CHECK(reason_of(engine_of(c, "kernel")) ==
          (interrupted ? "interrupted before it was judged" : "not reached"));
  }
}

TEST_CASE("ids are shown as text") {
  ModelShape bytes = kTiny;
  const std::vector<int32_t> ids = {'a', '\n', '\\', 0xff, 256};
  CHECK(sequence_text(bytes, ids) == "a\\n\\\\\\xff<256>");
  CHECK(sequence_text(kQwen3_0_6B, std::vector<int32_t>{1, 22}) == "1 22");
}

TEST_CASE("tokens of a tokenizer make one text, in which several may make a character") {
  const std::vector<TokenText> texts = {{3, " caf"}, {5, "\\xc3"}, {9, "\\xa9"}, {11, "\\n"}};
  CHECK(sequence_text(texts, std::vector<int32_t>{3, 5, 9, 11}) == " caf\xc3\xa9\\n");
  CHECK(sequence_text(texts, std::vector<int32_t>{9, 5}) == "\\xa9\\xc3");
  CHECK_FALSE(sequence_text(texts, std::vector<int32_t>{3, 4}));
  CHECK_FALSE(sequence_text({{3, "\\q"}}, std::vector<int32_t>{3}));
}

TEST_CASE("the text of an id comes from the references first") {
  GreedyReference none, captured;
  captured.texts = {{785, "The"}, {12095, " Paris"}};
  captured.prompts = {
      {.name = "ids", .set = "strict", .text = "", .ids = {785}, .steps = {}, .token_texts = {}},
      {.name = "capital",
       .set = "strict",
       .text = "The",
       .ids = {785},
       .steps = {{}, {}},
       .token_texts = {" a", " b"}}};
  captured.prompts[1].steps[0].token = 7;
  const std::vector<GreedyReference> references = {none, captured};
  CHECK(token_text(kQwen3_0_6B, references, 12095) == " Paris");
  CHECK(token_text(kQwen3_0_6B, references, 7) == " a");
  CHECK(token_text(kTiny, references, 'x') == "x");

  std::vector<ParityRow> rows(3);
  rows[0] = {.prompt = "ids", .set = "strict", .reference_text = "?", .engine_text = "?"};
  rows[1] = {.prompt = "capital", .set = "strict", .reference_text = " a", .engine_text = " a"};
  rows[2] = {.prompt = "capital", .set = "strict", .reference_text = " b", .engine_text = " Paris"};
  const JudgedText text = judged_text(references, rows);
  CHECK(text.prompt == "The");
  CHECK(text.continuation == " a Paris");
  CHECK(judged_text({none}, rows).prompt.empty());
}

TEST_CASE("a byte is shown as text") {
  for (const auto& [id, text] : {std::pair{0x1f, "\\x1f"},
                                 {0x20, " "},
                                 {0x7e, "~"},
                                 {0x7f, "\\x7f"},
                                 {255, "\\xff"},
                                 {256, "<256>"},
                                 {-1, ""}}) {
    CHECK(token_text(kTiny, id) == text);
  }
  CHECK(token_text(kQwen3_0_6B, 22).empty());  // mkbench has no tokenizer
  GreedyReference reference;
  reference.prompts = {{.name = "p",
                        .set = "strict",
                        .text = "",
                        .ids = {1},
                        .steps = {},
                        .token_texts = {" a", "b"}}};
  reference.prompts[0].steps.resize(2);
  reference.prompts[0].steps[1].token = 22;
  CHECK(token_text(kQwen3_0_6B, {reference}, 22) == "b");
  CHECK(token_text(kQwen3_0_6B, {reference}, 23).empty());
}

}  // namespace
}  // namespace mkbench::testing
