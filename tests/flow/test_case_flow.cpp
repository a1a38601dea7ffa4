// The flow of a case with scripted engines: gates before samples, receipts after them, and the
// verdict that each failure gets.
#include <string>
#include <vector>

#include "harness/flow/timed_truth.h"
#include "references/base/error.h"
#include "references/synthetic.h"
#include "tests/support/case_bench.h"
#include "tests/support/catch2.h"
#include "tests/support/scripted_engine.h"

namespace mkbench::testing {
namespace {

TEST_CASE("a right kernel passes its gate, is timed, and every token has a receipt") {
  Bench bench;
  const CaseReport c = bench.run();
  for (const char* name : {"eager", "kernel"}) {
    const EngineReport& e = engine_of(c, name);
    INFO(name << ": " << reason_of(e));
    CHECK(e.verdict == Verdict::kPass);
    REQUIRE(e.parity.has_value());
    CHECK(e.parity->strict_matched == kSteps);
    CHECK(e.samples.size() == 3);
    CHECK(e.receipts_checked == 24);
    CHECK(e.receipts_wrong == 0);
    CHECK(e.launches == 3);
    CHECK(e.ms_per_tok.has_value());
  }
  CHECK(bench.turns == 1 + 2 + 6);  // the kernel's gate, each warm-up, each sample
  CHECK(bench.timed_calls == 6);
  CHECK(bench.ended_calls == 6);
  CHECK(bench.loose_calls == 0);
  CHECK(engine_of(c, "eager").settings == "pinned=1");
  CHECK(engine_of(c, "kernel").throttle_reasons.empty());
  CHECK(engine_of(c, "kernel").card_reason == "no GPU");
  CHECK(c.timed_check == "late ids, scored by the truth");
  CHECK(c.reference == "reference.json");
  // Baseline, its fp32-head run, and a live truth; the candidate opens when those are over.
  CHECK(c.bytes_needed == 3000);
  CHECK_FALSE(c.generated_text.empty());
  CHECK(std::holds_alternative<Done>(bench.messages.back()));
}

TEST_CASE("blocks hold every engine once, in ABBA order, and the baseline is gated first") {
  Bench bench;
  bench.job.blocks = bench.job.max_blocks = 4;
  bench.run();
  std::vector<std::string> order, gate;
  for (const auto& m : bench.messages) {
    if (const auto* sample = std::get_if<SampleTaken>(&m)) {
      order.push_back(sample->engine);
      gate.push_back("sample " + sample->engine);
    }
    if (const auto* judged = std::get_if<ParityJudged>(&m))
      gate.push_back("parity " + judged->engine);
  }
  CHECK(order == std::vector<std::string>{"eager", "kernel", "kernel", "eager", "kernel", "eager",
                                          "eager", "kernel"});
  REQUIRE(gate.size() >= 2);
  CHECK(gate[0] == "parity eager");
  CHECK(gate[1] == "parity kernel");
}

TEST_CASE("a wrong token in the gate is FAIL_TOKEN; the kernel gets no times, the baseline does") {
  Bench bench;
  bench.job.time_anyway = true;
  bench.scripts["kernel"].wrong = [](int, int position) { return position == 5; };
  const CaseReport c = bench.run();
  CHECK(engine_of(c, "kernel").verdict == Verdict::kFailToken);
  CHECK(engine_of(c, "kernel").samples.empty());
  CHECK_FALSE(engine_of(c, "kernel").ms_per_tok.has_value());
  CHECK(engine_of(c, "eager").verdict == Verdict::kPass);
  CHECK(engine_of(c, "eager").samples.size() == 3);
}

TEST_CASE("where no candidate is left, nothing is timed unless it is asked for") {
  for (const bool anyway : {false, true}) {
    for (const bool in_gate : {true, false}) {
      Bench bench;
      bench.job.time_anyway = anyway;
      bench.add_ceiling();
      // Decodes 1 and 2 are the gate's, 3 is the warm-up, 4 the first sample.
      bench.scripts["kernel"].before = [=](int decode) {
        if (decode == (in_gate ? 2 : 4)) throw Error(ErrorKind::kHang, "no progress");
      };
      const CaseReport c = bench.run();
      const EngineReport& eager = engine_of(c, "eager");
      INFO(anyway << in_gate << testing::reason_of(engine_of(c, "kernel")));
      CHECK(engine_of(c, "kernel").verdict == Verdict::kHang);
      CHECK(eager.verdict == Verdict::kPass);
      // In the first block eager comes before the kernel.
      const size_t before = in_gate ? 0 : 1;
      CHECK(eager.samples.size() == (anyway ? 3 : before));
      CHECK(c.ceiling.samples.size() == (anyway ? 3 : 0));
      CHECK(holds(eager.times_withheld, "not timed: no candidate is left (--time-anyway") ==
            (in_gate && !anyway));
    }
  }
  Bench two;  // another candidate goes on
  two.job.engines.push_back({.name = "other", .asked = "other", .candidate = true});
  two.scripts["kernel"].wrong = [](int, int position) { return position == 5; };
  const CaseReport c = two.run();
  CHECK((engine_of(c, "eager").samples.size() == 3 && engine_of(c, "other").samples.size() == 3));
  Bench baselines;  // no candidate was asked for
  baselines.job.engines.pop_back();
  CHECK(engine_of(baselines.run(), "eager").samples.size() == 3);
}

TEST_CASE("a kernel that goes wrong only under the clock is caught by its receipts") {
  Bench bench;
  // Decodes 1 and 2 are the gate's (free and forced), 3 is the warm-up, 4 the first sample, 5 to 7
  // its state receipt, 8 the second sample.
  bench.scripts["kernel"].wrong = [](int decode, int position) {
    return decode == 8 && position == 2;
  };
  const CaseReport c = bench.run();
  const EngineReport& e = engine_of(c, "kernel");
  CHECK(e.verdict == Verdict::kFailToken);
  CHECK(holds(reason_of(e), "block 1, late id "));
  CHECK(holds(reason_of(e), ": position 2: found "));
  CHECK_FALSE(e.ms_per_tok.has_value());
  REQUIRE(e.samples.size() == 3);
  CHECK(e.samples[0].valid);
  CHECK_FALSE(e.samples[1].valid);
  CHECK(e.samples[2].valid);
  CHECK(e.receipts_wrong == 1);
  CHECK(engine_of(c, "eager").ms_per_tok.has_value());

  // Its step is in the report. Another run of this engine is right there, which the step says.
  REQUIRE(e.parity->failed_step);
  const FailedStep& step = *e.parity->failed_step;
  CHECK((step.position == 2 && step.free_tokens == 8 && step.prompt_ids == std::vector{3}));
  CHECK(step.late_id == e.samples[1].late_id);
  CHECK(step.forced_ids == std::vector(e.samples[1].ids.begin(), e.samples[1].ids.begin() + 2));
  CHECK(step.found == e.samples[1].ids[2]);
  CHECK(step.expected == scripted_token(step.forced_ids[1], 2, kVocab));
  CHECK((step.expected_top[0].id == step.expected && step.found_top[0].id == step.expected));
  CHECK(holds(step.localised, "when it was judged the id was"));
  CHECK_FALSE(engine_of(c, "eager").parity->failed_step);
}

TEST_CASE("a decode that never ran, or ran twice, is an integrity failure") {
  Bench skipped;
  skipped.scripts["kernel"].skip = [](int decode) { return decode == 4; };
  const CaseReport a = skipped.run();
  CHECK(engine_of(a, "kernel").verdict == Verdict::kIntegrity);
  CHECK(holds(reason_of(engine_of(a, "kernel")), "-1"));

  Bench twice;
  twice.scripts["kernel"].one_launch = true;
  twice.scripts["kernel"].extra_launch = [](int decode) { return decode == 4; };
  const CaseReport b = twice.run();
  CHECK(engine_of(b, "kernel").verdict == Verdict::kIntegrity);
  CHECK(holds(reason_of(engine_of(b, "kernel")), "2 launches"));

  Bench clocks;
  clocks.scripts["kernel"].event_ms = [](int) { return 1000.0; };
  const CaseReport c = clocks.run();
  CHECK(engine_of(c, "kernel").verdict == Verdict::kIntegrity);
  CHECK(holds(reason_of(engine_of(c, "kernel")), "clocks disagree"));

  // Clocks that disagree once mean a busy machine: the run is repeated, and its sample says so.
  Bench once;
  once.scripts["kernel"].event_ms = [](int decode) { return decode == 4 ? 1000.0 : 0.0; };
  const CaseReport repeated = once.run();
  const EngineReport& kernel = engine_of(repeated, "kernel");
  CHECK(kernel.verdict == Verdict::kPass);
  REQUIRE(kernel.samples.size() == 3);
  CHECK(kernel.samples[0].repeats == 1);
  CHECK(kernel.samples[1].repeats == 0);
  CHECK(kernel.launches == 4);
}

TEST_CASE("a wrong token counts even where the clocks of its sample disagree") {
  Bench bench;  // the first sample is decode 4; a repeat, decode 5, would be right
  bench.scripts["kernel"].wrong = [](int decode, int position) {
    return decode == 4 && position == 2;
  };
  bench.scripts["kernel"].event_ms = [](int decode) { return decode == 4 ? 1000.0 : 0.0; };
  const CaseReport c = bench.run();
  const EngineReport& kernel = engine_of(c, "kernel");
  CHECK(kernel.verdict == Verdict::kFailToken);
  CHECK(holds(reason_of(kernel), "block 0, late id "));
  CHECK(holds(reason_of(kernel), ": position 2: found "));
  REQUIRE(kernel.samples.size() == 3);
  CHECK(kernel.samples[0].repeats == 1);  // the dropped run is scored too
}

TEST_CASE("NaN logits fail fidelity") {
  Bench bench;
  bench.scripts["kernel"].nan_logits = [](int) { return true; };
  CHECK(engine_of(bench.run(), "kernel").verdict == Verdict::kFailFidelity);
}

TEST_CASE("a baseline that fails the reference leaves the kernel without a verdict") {
  Bench bench;
  bench.scripts["eager"].wrong = [](int, int position) { return position == 1; };
  const CaseReport c = bench.run();
  CHECK(engine_of(c, "eager").verdict == Verdict::kInvalidReference);
  CHECK(engine_of(c, "kernel").verdict == Verdict::kNotJudged);
  CHECK(engine_of(c, "kernel").samples.empty());

  // The baseline's run with the last matmul in fp32 is held to the reference too.
  Bench head;
  head.scripts["eager-head-fp32"].wrong = [](int, int position) { return position == 1; };
  const CaseReport h = head.run();
  CHECK(engine_of(h, "eager").verdict == Verdict::kInvalidReference);
  CHECK(holds(reason_of(engine_of(h, "eager")), "with the last matmul in fp32: "));
  for (const CheckResult& check : engine_of(h, "eager").parity->checks) {
    if (check.check == Check::kFlips) CHECK(check.value == 0);  // the baseline's own
  }
  CHECK(engine_of(h, "kernel").verdict == Verdict::kNotJudged);
}

TEST_CASE("an exception of an engine becomes the verdict of that engine, and costs no other one") {
  struct Row {
    int decode;
    std::exception_ptr thrown;
    Verdict verdict;
  };
  const auto error = [](ErrorKind kind) { return std::make_exception_ptr(Error(kind, "broken")); };
  for (const Row& row :
       {Row{4, error(ErrorKind::kHang), Verdict::kHang},
        Row{1, error(ErrorKind::kRuntime), Verdict::kRuntimeError},
        Row{4, error(ErrorKind::kEnvUnfit), Verdict::kEnvUnfit},
        Row{4, std::make_exception_ptr(std::bad_alloc()), Verdict::kEnvUnfit},
        Row{2, std::make_exception_ptr(std::logic_error("?")), Verdict::kRuntimeError},
        Row{4, error(ErrorKind::kCuda), Verdict::kCudaError}}) {
    INFO(verdict_name(row.verdict));
    Bench bench;
    bench.job.time_anyway = true;
    bench.scripts["kernel"].device = "cuda:0 Some GPU";
    bench.scripts["kernel"].before = [&](int decode) {
      if (decode == row.decode) std::rethrow_exception(row.thrown);
    };
    const CaseReport c = bench.run();
    CHECK(engine_of(c, "kernel").verdict == row.verdict);
    CHECK(engine_of(c, "kernel").samples.empty());
    CHECK(engine_of(c, "eager").verdict == Verdict::kPass);
    CHECK(engine_of(c, "eager").samples.size() == 3);
  }
}

TEST_CASE("an error that concerns the whole case becomes the verdict of the case") {
  Bench context;
  context.job.n_gen = 256;
  context.job.ids = {1, 2, 3};
  const CaseReport c = context.run();
  CHECK(c.verdict == Verdict::kBadInput);
  REQUIRE_FALSE(c.reasons.empty());
  CHECK(holds(c.reasons[0], "258"));
  CHECK(holds(c.reasons[0], "256"));

  Bench stale;
  stale.references[0].weights_sha256 = "other";
  const CaseReport s = stale.run();
  CHECK(s.verdict == Verdict::kInvalidReference);
  CHECK(engine_of(s, "kernel").verdict == Verdict::kNotJudged);

  Bench required;
  required.references.clear();
  required.job.require_reference = true;
  const CaseReport r = required.run();
  CHECK(r.verdict == Verdict::kInvalidReference);
  CHECK(holds(r.reasons[0], "capture_reference.py"));
}

TEST_CASE("Ctrl-C ends the case after the running sample and keeps what was measured") {
  Bench bench;
  bench.stop_after_samples = 3;
  const CaseReport c = bench.run();
  CHECK(bench.interrupted);
  CHECK(bench.samples_seen == 3);
  CHECK(engine_of(c, "eager").samples.size() + engine_of(c, "kernel").samples.size() == 3);
  CHECK_FALSE(c.generated_text.empty());
  CHECK(std::holds_alternative<CaseInterrupted>(bench.messages.back()));
}

TEST_CASE("a model without a reference is judged live, and says so") {
  Bench bench;
  bench.references.clear();
  bench.job.ids.clear();
  // Ratios divide by the error of the fp32-head run, so its runner-up differs a little from the
  // truth's.
  bench.scripts["eager"].runner_up = bench.scripts["eager-head-fp32"].runner_up = 0.05f;
  const CaseReport c = bench.run();
  INFO((c.reasons.empty() ? "" : c.reasons[0]) << reason_of(engine_of(c, "kernel")));
  CHECK(engine_of(c, "eager").verdict == Verdict::kPassLive);
  CHECK(engine_of(c, "kernel").verdict == Verdict::kPassLive);
  CHECK(c.reference == "live");
  CHECK(c.timed_check == "late ids, scored by the truth");
  CHECK(engine_of(c, "kernel").samples.size() == 3);
}

TEST_CASE("a second yardstick is judged like a candidate, and adds no second truth") {
  Bench bench;
  bench.references.clear();
  bench.job.ids.clear();
  bench.job.engines.insert(bench.job.engines.begin() + 1,
                           {.name = "graph", .asked = "graph", .yardstick = true});
  bench.scripts["eager"].runner_up = bench.scripts["eager-head-fp32"].runner_up = 0.05f;
  const CaseReport c = bench.run();
  for (const char* name : {"eager", "graph", "kernel"}) {
    const EngineReport& e = engine_of(c, name);
    INFO(name << ": " << reason_of(e));
    CHECK(e.verdict == Verdict::kPassLive);
    CHECK(e.samples.size() == 3);
    REQUIRE(e.parity.has_value());
    CHECK(e.parity->reference == "live");  // not "live, live"
    CHECK(e.parity->prompts == engine_of(c, "kernel").parity->prompts);
  }
  CHECK(engine_of(c, "graph").role == "baseline");
  CHECK(c.comparisons.size() == 3);  // the kernel over both, and graph over eager

  // A wrong yardstick fails alone; judge and candidate still pass.
  bench.scripts["graph"].wrong = [](int, int position) { return position == 1; };
  const CaseReport wrong = bench.run();
  CHECK(engine_of(wrong, "graph").verdict == Verdict::kFailToken);
  CHECK(engine_of(wrong, "eager").verdict == Verdict::kPassLive);
  CHECK(engine_of(wrong, "kernel").verdict == Verdict::kPassLive);
}

TEST_CASE(
    "synthetic is judged on short lags, timed on its depth's lags, and held to the closed form") {
  Bench bench;
  std::vector<std::string> loaded;
  bench.job.model = named("synthetic");
  bench.job.salt = 9;
  bench.job.ids.clear();
  bench.job.depth = 2;  // too short for any planted lag
  bool honest = true;   // else the kernel knows the references' weights alone
  bench.services.config = [](const std::string&) {
    ModelConfig config;
    config.shape.vocab = kQwen3_0_6B.vocab;
    return config;
  };
  bench.services.load = [&](const std::string& model, int) {
    loaded.push_back(model);
    ModelWeights weights;
    weights.name = model;
    weights.lagset = model.substr(model.find(':') + 1);
    weights.sha256 = "w1";
    weights.config = bench.services.config("");
    weights.config.max_positions = 4096;
    return weights;
  };
  ReferencePrompt& prompt = bench.references[0].prompts[0];
  prompt.ids = synthetic_prompt(20, 7);
  std::string asked;
  bench.services.references = [&](const std::string& name) {
    asked = name;
    const std::vector<int32_t> answer =
        synthetic_continuation(prompt.ids, name.substr(name.find(':') + 1), kSteps);
    for (int t = 0; t < kSteps; ++t) {
      ReferenceStep& step = prompt.steps[static_cast<size_t>(t)];
      step.position = 20 + t;
      step.token = answer[static_cast<size_t>(t)];
      step.top_ids = {step.token, (step.token + 1) % kQwen3_0_6B.vocab};
    }
    return bench.references;
  };
  bench.services.make_engine = [&](const EngineRequest& request, const ModelWeights& weights) {
    Script script = bench.scripts[request.name];
    script.vocab = kQwen3_0_6B.vocab;
    const uint64_t salt = honest || request.name != "kernel" ? weights.salt : 0;
    script.rule = [lags = weights.lagset, salt](const std::vector<int32_t>& ids) {
      const StateCode code(kQwen3_0_6B.vocab, salt);
      for (const int32_t id : ids) {
        if (code.state(id) < 0) return 0;
      }
      return synthetic_continuation(ids, lags, 1, kQwen3_0_6B.vocab, salt).front();
    };
    return std::make_unique<ScriptedEngine>(script);
  };
  const CaseReport c = bench.run();
  INFO((c.reasons.empty() ? "" : c.reasons[0]) << reason_of(engine_of(c, "kernel")));
  CHECK(loaded == std::vector<std::string>{"synthetic:short", "synthetic:none"});
  CHECK(c.timed_check == "closed form");
  CHECK(c.lagset == "none");
  CHECK((c.salt == 9 && c.generator == kSyntheticVersion));
  CHECK(engine_of(c, "kernel").verdict == Verdict::kPass);
  CHECK(engine_of(c, "kernel").receipts_checked == 24);
  CHECK(asked == "synthetic:short");

  // Parity is judged without the salt, so that an engine without weights passes it: not the timing.
  honest = false;
  const CaseReport known = bench.run();
  CHECK(engine_of(known, "eager").verdict == Verdict::kPass);
  CHECK(engine_of(known, "kernel").parity->verdict == Verdict::kPass);
  CHECK(engine_of(known, "kernel").verdict == Verdict::kFailToken);
  REQUIRE(engine_of(known, "kernel").parity->failed_step);
  CHECK(engine_of(known, "kernel").parity->failed_step->salt == 9);
  bench.job.salt = 0;
  CHECK(engine_of(bench.run(), "kernel").verdict == Verdict::kPass);
  bench.job.salt = 9;
  honest = true;

  // A lag set with references of its own is judged on these; all other lag sets are judged on
  // short's.
  bench.job.depth = 20;
  for (const std::string lagset : {"early", "late"}) {
    loaded.clear();
    bench.job.model = named("synthetic:" + lagset);
    const CaseReport own = bench.run();
    CHECK(engine_of(own, "kernel").verdict == Verdict::kPass);
    CHECK(asked == bench.job.model.name);
    CHECK(loaded == std::vector<std::string>(2, bench.job.model.name));
  }
  loaded.clear();
  bench.job.model = named("synthetic:none");
  CHECK(engine_of(bench.run(), "kernel").verdict == Verdict::kPass);
  CHECK(asked == "synthetic:short");
  CHECK(loaded == std::vector<std::string>{"synthetic:short", "synthetic:none"});

  // A reference that contradicts the closed form is refused.
  const auto right = bench.services.references;
  bench.services.references = [&](const std::string& name) {
    std::vector<GreedyReference> wrong = right(name);
    std::swap(wrong[0].prompts[0].steps[3].token, wrong[0].prompts[0].steps[4].token);
    return wrong;
  };
  CHECK(bench.run().verdict == Verdict::kInvalidReference);
}

}  // namespace
}  // namespace mkbench::testing
