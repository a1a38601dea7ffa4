// `mkbench parity` with scripted engines: every check, nothing timed.
#include <algorithm>
#include <string>
#include <vector>

#include "harness/judge/parity.h"
#include "harness/judge/repeats.h"
#include "tests/support/case_bench.h"
#include "tests/support/catch2.h"

namespace mkbench {
namespace {

using testing::Bench;
using testing::engine_of;

// A parity case of scripted engines, whose rule holds at every cache length and has no near ties.
Bench parity_bench() {
  Bench bench;
  bench.job.whole_parity = true;
  bench.job.engines[0].yardstick = false;
  bench.job.n_gen = bench.job.blocks = 0;
  bench.job.ids.clear();
  // The fp32-head run differs a little from the truth, because the ratios divide by its error.
  bench.scripts["eager-head-fp32"].runner_up = 0.05f;
  return bench;
}

CheckStatus status_of(const EngineReport& e, Check check) {
  REQUIRE(e.parity.has_value());
  const CheckResult* result = find_check(*e.parity, check);
  REQUIRE(result != nullptr);
  return result->status;
}

TEST_CASE("`parity` adds repeats, sweep and isolation, and takes no sample") {
  Bench bench = parity_bench();
  const CaseReport c = bench.run();
  const EngineReport& kernel = engine_of(c, "kernel");
  INFO(testing::reason_of(kernel));
  CHECK(kernel.verdict == Verdict::kPass);
  CHECK(kernel.samples.empty());
  CHECK(engine_of(c, "eager").samples.empty());
  for (const Check check : {Check::kRan, Check::kDecided, Check::kStrict, Check::kRepeats,
                            Check::kSweep, Check::kIsolation}) {
    INFO(check_name(check));
    CHECK(status_of(kernel, check) == CheckStatus::kPassed);
  }
  CHECK(status_of(kernel, Check::kHead) == CheckStatus::kNotApplicable);
  CHECK(holds(find_check(*kernel.parity, Check::kHead)->detail, "other numbers of rows"));
  CHECK(kernel.parity->repeats_sha256.size() == 64);
  const std::string coverage =
      "cache lengths 1-256 of 256 judged (walked 256; prefills of 14, 15, 16, ..., 255 rows)";
  CHECK(kernel.parity->coverage == coverage);
  CHECK(find_check(*kernel.parity, Check::kSweep)->detail == coverage);
  CHECK((kernel.parity->lengths_judged == 256 && kernel.parity->lengths_known == 256));
  CHECK(kernel.parity->precision == "bf16");
  // A fresh process gives bit-equal ids and logits.
  EventSink sink([](const CaseEvent&) {});
  RepeatHashes fresh = hash_case_repeats(bench.job, bench.services, sink);
  CHECK(fresh.size() == 1);
  CHECK(fresh["kernel"].sha256 == kernel.parity->repeats_sha256);
  CHECK(fresh["kernel"].problem.empty());

  // A candidate that ends there costs the others nothing.
  bench.job.engines.insert(bench.job.engines.begin() + 1,
                           CaseEngine{.name = "crashing", .asked = "crashing", .candidate = true});
  const auto make = bench.services.make_engine;
  bench.services.make_engine = [&](const EngineRequest& request, const ModelWeights& weights) {
    if (request.name == "crashing") throw Error(ErrorKind::kRuntime, "its host died");
    return make(request, weights);
  };
  fresh = hash_case_repeats(bench.job, bench.services, sink);
  CHECK(fresh["crashing"].problem == "its host died");
  CHECK(fresh["crashing"].sha256.empty());
  CHECK(fresh["kernel"].sha256 == kernel.parity->repeats_sha256);

  Bench timed;
  const CaseReport run = timed.run();
  CHECK(find_check(*engine_of(run, "kernel").parity, Check::kSweep) == nullptr);
  CHECK(engine_of(run, "kernel").parity->repeats_sha256.empty());
}

// A prompt of the rule's tokens, with as many steps as the first one.
ReferencePrompt prompt_of(size_t ids) {
  ReferencePrompt prompt = testing::scripted_reference().prompts[0];
  prompt.name = "long";
  prompt.ids.assign(ids, 3);
  int32_t id = 3;
  for (ReferenceStep& step : prompt.steps) {
    step.position += static_cast<int>(ids) - 1;
    step.token = id = testing::scripted_token(id, step.position, testing::kVocab);
    step.top_ids = {id, (id + 1) % testing::kVocab};
  }
  return prompt;
}

TEST_CASE(
    "an engine with room for 64 positions is judged at all lengths up to 64, and at no other") {
  Bench bench = parity_bench();
  bench.scripts["kernel"].context_limit = 64;
  // 49 ids leave room for the 16 steps of a repeat; 50 do not.
  bench.references[0].prompts.push_back(prompt_of(49));
  EngineReport kernel = engine_of(bench.run(), "kernel");
  INFO(testing::reason_of(kernel));
  CHECK(kernel.verdict == Verdict::kPass);
  const std::string coverage =
      "cache lengths 1-64 of 256 judged (walked 64; prefills of 14, 15, 16, ..., 63 rows); the "
      "engine takes at most 64";
  CHECK(kernel.parity->coverage == coverage);
  CHECK((kernel.parity->prompts == 2 && !kernel.parity->logits_sha256.empty()));

  bench.references[0].prompts[1] = prompt_of(50);
  kernel = engine_of(bench.run(), "kernel");
  INFO(testing::reason_of(kernel));
  CHECK(kernel.verdict == Verdict::kPass);
  CHECK(kernel.parity->coverage ==
        coverage + "; left out, too long for its max_context: prompt long");
  CHECK((kernel.parity->prompts == 1 && kernel.parity->logits_sha256.empty()));
  EventSink sink([](const CaseEvent&) {});
  CHECK(hash_case_repeats(bench.job, bench.services, sink)["kernel"].sha256 ==
        kernel.parity->repeats_sha256);

  bench.scripts["kernel"].wrong = [](int, int position) { return position == 63; };
  kernel = engine_of(bench.run(), "kernel");
  CHECK(kernel.verdict == Verdict::kFailToken);
  CHECK_THAT(testing::reason_of(kernel), ContainsText("first 64 rows"));
}

TEST_CASE("the truth of the cache lengths serves an engine with more room than the one before it") {
  Bench bench = parity_bench();
  bench.job.engines.push_back({.name = "wide", .asked = "wide", .candidate = true});
  bench.scripts["kernel"].context_limit = 64;
  const CaseReport c = bench.run();
  CHECK(engine_of(c, "kernel").parity->lengths_judged == 64);
  CHECK(engine_of(c, "wide").parity->lengths_judged == 256);
  CHECK(engine_of(c, "wide").verdict == Verdict::kPass);
}

TEST_CASE("a case may need as many positions as an engine has, and not one more") {
  for (const int tokens : {16, 17}) {
    Bench bench;
    bench.job.n_gen = tokens;
    bench.scripts["kernel"].context_limit = 16;
    const EngineReport kernel = engine_of(bench.run(), "kernel");
    INFO(tokens << testing::reason_of(kernel));
    CHECK(kernel.verdict == (tokens == 16 ? Verdict::kPass : Verdict::kBadInput));
    if (tokens == 16) continue;
    CHECK(testing::reason_of(kernel) ==
          "engine kernel: positions of this case: found 17, wanted at most its max_context, 16: a "
          "smaller -d, -n or -p");
  }
  Bench none;
  none.scripts["kernel"].context_limit = 15;
  CHECK_THAT(testing::reason_of(engine_of(none.run(), "kernel")),
             ContainsText("no prompt of the references fits into its max_context of 15 positions"));
}

TEST_CASE("only the sweep detects a token that is wrong at a cache length beyond every reference") {
  Bench bench = parity_bench();
  bench.scripts["kernel"].wrong = [](int, int position) { return position == 126; };
  const CaseReport c = bench.run();
  const EngineReport& kernel = engine_of(c, "kernel");
  CHECK(kernel.verdict == Verdict::kFailToken);
  CHECK(status_of(kernel, Check::kSweep) == CheckStatus::kFailed);
  CHECK(status_of(kernel, Check::kStrict) == CheckStatus::kPassed);
  CHECK_THAT(kernel.parity->reason, ContainsText("127 rows"));
  CHECK(holds(kernel.parity->localised, "position 126"));
  CHECK(kernel.parity->diagnosis.text == "not diagnosed: this truth tries no bugs");
  const std::vector<ErrorAt>& errors = kernel.parity->error_by_position;
  REQUIRE(errors.size() == 32);
  CHECK((errors.back().at == 126 && errors.back().error > 1 && errors[30].error == 0));
  REQUIRE(kernel.parity->failed_step);
  const FailedStep& step = *kernel.parity->failed_step;
  CHECK((step.engine == "kernel" && step.weights_sha256 == "w1" && step.command.empty()));
  CHECK(step.position == 126);
  CHECK(step.prompt_ids.size() + step.forced_ids.size() == 127);
  CHECK(step.found == (step.expected + 1) % testing::kVocab);
  REQUIRE((step.expected_top.size() == 5 && step.found_top.size() == 5));
  CHECK((step.expected_top[0].id == step.expected && step.found_top[0].id == step.found));

  // `parity --only` repeats the step: the same engine fails there, a sound one does not.
  for (const bool sound : {false, true}) {
    Bench again = parity_bench();
    if (!sound) again.scripts["kernel"].wrong = bench.scripts["kernel"].wrong;
    again.job.only = step;
    const EngineReport repeated = engine_of(again.run(), "kernel");
    INFO(testing::reason_of(repeated));
    CHECK(repeated.verdict == (sound ? Verdict::kPass : Verdict::kFailToken));
    CHECK(repeated.parity->failed_step->found == (sound ? step.expected : step.found));
  }

  Bench timed;
  timed.scripts["kernel"].wrong = bench.scripts["kernel"].wrong;
  CHECK(engine_of(timed.run(), "kernel").verdict == Verdict::kPass);
}

TEST_CASE("a step of the sweep is kept as it was judged where the engine cannot repeat it") {
  for (const bool hangs : {true, false}) {
    Bench bench = parity_bench();
    int seen = 0;
    bench.scripts["kernel"].wrong = [&](int, int position) {
      // The repetition is right.
      return position == 126 && (hangs || ++seen == 1);
    };
    bench.scripts["kernel"].before = [=, &seen](int) {
      if (hangs && seen > 0) throw Error(ErrorKind::kHang, "no progress");
    };
    if (hangs) {
      bench.scripts["kernel"].wrong = [&](int, int position) {
        seen += position == 126;
        return position == 126;
      };
    }
    const EngineReport kernel = engine_of(bench.run(), "kernel");
    INFO(testing::reason_of(kernel));
    CHECK(kernel.verdict == Verdict::kFailToken);
    REQUIRE(kernel.parity->failed_step);
    const FailedStep& step = *kernel.parity->failed_step;
    CHECK(step.position == 126);
    CHECK(step.verdict == StepVerdict::kWrong);
    CHECK(step.found == (step.expected + 1) % testing::kVocab);
    CHECK(step.expected_top[0].id == step.expected);
    CHECK(holds(step.localised, hangs ? "not localised: the engine ended its checks by an error"
                                      : "when it was judged the id was"));
  }
}

TEST_CASE("where the prompts fail, head is not judged") {
  Bench bench = parity_bench();
  bench.scripts["kernel"].wrong = [](int, int position) { return position == 5; };
  for (const bool keep_going : {false, true}) {
    bench.job.keep_going = keep_going;
    const EngineReport kernel = engine_of(bench.run(), "kernel");
    CHECK(status_of(kernel, Check::kHead) == CheckStatus::kNotApplicable);
    CHECK(holds(find_check(*kernel.parity, Check::kHead)->detail,
                keep_going ? "the prompts have failed" : "not run: decided failure before"));
  }
}

TEST_CASE("a wrong token is FAIL_TOKEN however the engine ends, in `run` and in `parity`") {
  for (const bool whole : {false, true}) {
    Bench bench = whole ? parity_bench() : Bench();
    bench.scripts["kernel"].wrong = [](int, int position) { return position == 5; };
    for (const int last : {1, 4}) {  // it ends in the gate's second call, or in its repeats
      bench.scripts["kernel"].before = [=](int decode) {
        if (decode > last) throw Error(ErrorKind::kHang, "no progress");
      };
      const EngineReport kernel = engine_of(bench.run(), "kernel");
      INFO(whole << last << testing::reason_of(kernel));
      CHECK(kernel.verdict == Verdict::kFailToken);
      CHECK_THAT(testing::reason_of(kernel), ContainsText("prompt 'one' position 5"));
      CHECK(holds(testing::reason_of(kernel), "; then: no progress"));
      CHECK(kernel.parity->wrong == 1);
      CHECK(status_of(kernel, Check::kDecided) == CheckStatus::kFailed);
    }
    // A hang before anything was wrong is a hang, and there is no step to localise.
    bench.scripts["kernel"].wrong = nullptr;
    const EngineReport hung = engine_of(bench.run(), "kernel");
    CHECK(hung.verdict == Verdict::kHang);
    CHECK((hung.parity->localised.empty() && !hung.parity->failed_step));
  }
}

TEST_CASE(
    "after a decided failure a few repeats are made and nothing else, unless it is asked for") {
  for (const bool keeps_going : {false, true}) {
    Bench bench = parity_bench();
    bench.job.keep_going = keeps_going;
    bench.scripts["kernel"].wrong = [](int, int position) { return position >= 5; };
    int decodes = 0;
    bench.scripts["kernel"].before = [&](int decode) { decodes = std::max(decodes, decode); };
    const EngineReport kernel = engine_of(bench.run(), "kernel");
    INFO(testing::reason_of(kernel));
    CHECK(kernel.verdict == Verdict::kFailToken);
    CHECK(status_of(kernel, Check::kRepeats) == CheckStatus::kPassed);
    CHECK(find_check(*kernel.parity, Check::kRepeats)->detail ==
          (keeps_going ? "" : "3 runs of a prompt, not 20: decided failure before"));
    CHECK(kernel.parity->repeats_sha256.empty() != keeps_going);
    CHECK((kernel.parity->lengths_judged > 0) == keeps_going);
    CHECK(kernel.parity->coverage.empty() != keeps_going);
    CHECK(status_of(kernel, Check::kSweep) ==
          (keeps_going ? CheckStatus::kFailed : CheckStatus::kNotApplicable));
    for (const Check check : {Check::kSweep, Check::kIsolation}) {
      CHECK(holds(find_check(*kernel.parity, check)->detail,
                  "not run: decided failure before (--keep-going runs it)") != keeps_going);
    }
    REQUIRE(kernel.parity->failed_step);
    CHECK(kernel.parity->failed_step->position == 5);
    CHECK(holds(kernel.parity->facts.front(), "right with up to 5 KV rows"));
    CHECK((decodes < 16) != keeps_going);
    // One that is judged, and one for a reset that keeps its position.
    CHECK((bench.made["kernel"] == 2) != keeps_going);
  }
  // A race that the gate's own repeats, decodes 4 to 7, do not meet shows in the few repeats.
  Bench racing = parity_bench();
  racing.scripts["kernel"].wrong = [](int decode, int position) {
    return position == 5 || (decode == 10 && position == 6);
  };
  const EngineReport racer = engine_of(racing.run(), "kernel");
  CHECK(status_of(racer, Check::kRepeats) == CheckStatus::kFailed);
  CHECK(racer.verdict == Verdict::kNondeterministic);
  CHECK_THAT(testing::reason_of(racer), ContainsText("run 3 of 3 in a row"));
  CHECK(racing.made["kernel"] == 3);  // the diagnosis has an engine of its own
}

TEST_CASE("what an engine leaves behind fails a check, beside what was judged before") {
  for (const bool whole : {false, true}) {
    for (const ErrorKind kind : {ErrorKind::kIntegrity, ErrorKind::kRuntime}) {
      Bench bench = whole ? parity_bench() : Bench();
      bench.scripts["kernel"].before = [=](int decode) {
        if (decode > 1) throw Error(kind, "threads are left");
      };
      const EngineReport kernel = engine_of(bench.run(), "kernel");
      CHECK(testing::reason_of(kernel) == "threads are left");
      CHECK(kernel.verdict ==
            (kind == ErrorKind::kIntegrity ? Verdict::kIntegrity : Verdict::kRuntimeError));
      CHECK(kernel.parity.has_value() == (kind == ErrorKind::kIntegrity));
      if (!kernel.parity) continue;
      CHECK(kernel.parity->verdict == Verdict::kIntegrity);
      CHECK(status_of(kernel, Check::kRan) == CheckStatus::kPassed);
      CHECK(status_of(kernel, Check::kIsolation) == CheckStatus::kFailed);
      CHECK(find_check(*kernel.parity, Check::kIsolation)->detail == "threads are left");
    }
  }
  Bench bench = parity_bench();  // of a second prompt nothing is known
  bench.references[0].prompts.push_back(bench.references[0].prompts[0]);
  bench.references[0].prompts[0].set = "near-tie";
  bench.scripts["kernel"].before = [](int decode) {
    if (decode > 2) throw Error(ErrorKind::kIntegrity, "threads are left");
  };
  const EngineReport kernel = engine_of(bench.run(), "kernel");
  CHECK(find_check(*kernel.parity, Check::kStrict)->detail ==
        "the steps reached hold no strict prompt");
  CHECK(find_check(*kernel.parity, Check::kNearTie)->detail ==
        "the steps reached hold no near tie");
}

TEST_CASE("what was found in the trials stands, also where a later one ends the engine") {
  Bench bench = parity_bench();
  bench.scripts["kernel"].wrong = [&](int decode, int) { return decode == 5; };
  bench.scripts["kernel"].before = [](int decode) {
    if (decode == 26) throw Error(ErrorKind::kHang, "no progress");
  };
  const EngineReport kernel = engine_of(bench.run(), "kernel");
  INFO(testing::reason_of(kernel));
  CHECK(kernel.verdict == Verdict::kNondeterministic);
  CHECK_THAT(testing::reason_of(kernel), ContainsText("; then: no progress"));
  CHECK(status_of(kernel, Check::kRepeats) == CheckStatus::kFailed);
  CHECK(kernel.parity->localised.empty());  // no single step shows it
}

TEST_CASE("a time budget that ends is INCOMPLETE; a failure outranks it") {
  for (const bool whole : {false, true}) {
    Bench bench = whole ? parity_bench() : Bench();
    ReferencePrompt again = bench.references[0].prompts[0];
    again.name = "two";
    bench.references[0].prompts.push_back(again);
    bench.job.time_budget_s = 1e-9;
    const EngineReport kernel = engine_of(bench.run(), "kernel");
    CHECK(kernel.verdict == Verdict::kIncomplete);
    const std::string reason = testing::reason_of(kernel);
    CHECK_THAT(reason,
               ContainsText("(--time-budget) ended; reached: 12 of 24 steps of the prompts"));
    CHECK(holds(reason, "0 of 42 repeats") == false);  // one prompt is repeated
    CHECK(holds(reason, "0 of 21 repeats") == whole);
    CHECK(holds(reason, "0 of the 256 cache lengths that a pass needs") == whole);
    CHECK(engine_of(bench.run(), "eager").verdict == Verdict::kPass);  // the baseline has no budget
    CHECK(kernel.samples.empty());
    CHECK(holds(kernel.parity->coverage, "no cache length") == whole);
    bench.scripts["kernel"].wrong = [](int, int position) { return position == 5; };
    CHECK(engine_of(bench.run(), "kernel").verdict == Verdict::kFailToken);
  }
  Bench timed;  // all steps of the prompts are judged, and `run` needs no more
  timed.job.time_budget_s = 1e-9;
  CHECK(engine_of(timed.run(), "kernel").verdict == Verdict::kPass);
}

TEST_CASE("a wrong token in the gate is localised, in `run` too") {
  Bench bench;
  bench.services.config = [config = bench.services.config](const std::string& model) {
    ModelConfig with_layers = config(model);
    with_layers.shape.layers = 2;
    return with_layers;
  };
  bench.scripts["kernel"].wrong = [](int, int position) { return position == 5; };
  const EngineReport kernel = engine_of(bench.run(), "kernel");
  CHECK(kernel.verdict == Verdict::kFailToken);
  CHECK(holds(kernel.parity->localised, "prompt 'one' position 5"));
  CHECK(holds(kernel.parity->localised, "no hidden states or KV rows are shown: offer show()"));
}

TEST_CASE("the ratchet is looked up by engine, card, model and reference") {
  Bench bench = parity_bench();
  std::vector<RatchetKey> asked;
  bench.services.ratchet = [&](const RatchetKey& key) -> std::optional<Ratchet> {
    asked.push_back(key);
    return std::nullopt;
  };
  bench.scripts["kernel"].device = "cuda:0 NVIDIA H200";
  bench.run();
  // For the prompts, and for the logits of those that are repeated.
  REQUIRE(asked.size() == 2);
  CHECK(asked[1].reference_sha256 == asked[0].reference_sha256);
  CHECK(asked[0].engine == "kernel");
  CHECK(asked[0].card == "NVIDIA H200");
  CHECK(asked[0].model == "scripted");
  CHECK(asked[0].reference_sha256 == "r1");
}

}  // namespace
}  // namespace mkbench
