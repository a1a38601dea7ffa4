// What a case is said to take before it begins, against what it takes.
#include <fmt/format.h>

#include "harness/flow/case_memory.h"
#include "harness/flow/forecast.h"
#include "harness/flow/gate.h"
#include "harness/flow/timed_truth.h"
#include "harness/judge/sweep.h"
#include "references/base/error.h"
#include "references/model_row.h"
#include "references/synthetic.h"
#include "tests/support/case_bench.h"

namespace mkbench::testing {
namespace {

// Every token of every engine takes a millisecond.
void slow_down(Bench& bench) {
  for (const char* name : {"eager", "kernel", "eager-fp32", "eager-head-fp32"}) {
    bench.scripts[name].rule = [&bench](const std::vector<int32_t>& ids) {
      bench.pass_ms(1);
      return scripted_token(ids.back(), static_cast<int>(ids.size()) - 1, kVocab);
    };
  }
}

Forecast forecast_of(Bench& bench, bool whole = true) {
  Forecaster forecaster(300);
  forecaster.measure(bench.job, bench.services, whole);
  return forecaster.forecast(bench.job);
}

// An opening takes 60 ms, a prefill 6.5 ms and 0.5 ms for each row, a token 2 ms, and 5 ms with logits.
// The first prefill and the first decode of an engine take longer, and one prefill in sixteen.
struct Paced final : ScriptedEngine {
  Paced(const Script& script, Bench& its_bench) : ScriptedEngine(script), bench(its_bench) {
    bench.pass_ms(60);
  }
  void prefill(std::span<const int32_t> ids) override {
    bench.pass_ms(6 + 0.5 * static_cast<double>(ids.size()) + (++prefills % 16 == 1 ? 50 : 0));
    ScriptedEngine::prefill(ids);
  }
  Ids decode(int n, const int32_t* forced, float* logits) override {
    bench.pass_ms(n * (logits != nullptr ? 5 : 2) + (++decodes == 1 ? 400 : 0));
    return ScriptedEngine::decode(n, forced, logits);
  }
  Bench& bench;
  int prefills = 0, decodes = 0;
};

void pace(Bench& bench) {
  bench.services.make_engine = [&](const EngineRequest& request, const ModelWeights&) {
    Script script = bench.scripts[request.name];
    script.name = request.name;
    return std::make_unique<Paced>(script, bench);
  };
  for (size_t t = kSteps; t < 16; ++t) {
    auto& steps = bench.references[0].prompts[0].steps;
    steps.push_back(steps.back());
    steps[t].position = static_cast<int>(t);
    steps[t].token = scripted_token(steps[t - 1].token, static_cast<int>(t), kVocab);
    steps[t].top_ids = {steps[t].token, (steps[t].token + 1) % kVocab};
  }
}

TEST_CASE("a case takes the time that was foretold, within 30 %, in one process and in six") {
  for (const int processes : {1, 6}) {
    Bench bench;
    slow_down(bench);
    bench.services.make_engine = [&bench, make = bench.services.make_engine](const auto&... of) {
      bench.pass_ms(60);
      return make(of...);
    };
    bench.job.processes = processes, bench.job.blocks = bench.job.max_blocks = 6;
    const double foretold = forecast_of(bench).seconds(), begin = bench.now_s;
    CHECK(engine_of(bench.run(), "kernel").verdict == Verdict::kPass);
    CHECK(foretold == Approx(bench.now_s - begin).epsilon(0.3));
  }
}

TEST_CASE("a case is foretold to the token, the row and the opening") {
  // Each of two engines: three blocks and a warm-up of 8 tokens, 1.25 state receipts of 24, a prefill.
  const double timing = 2 * (2 * (4 * 8 + 1.25 * 24) + 6.5);
  const double scoring = 60 + 6.5 + 2 * 3 * 8 * 5;  // the engines round their logits differently
  struct Row {
    const char* what;
    std::function<void(CaseJob&)> change;
    double timing_ms, scoring_ms;
  };
  const std::vector<Row> rows = {
      {"as it is", [](CaseJob&) {}, timing, scoring},
      {"tokens", [](CaseJob& job) { job.n_gen = 16; }, timing + 2 * 2 * (4 * 8 + 1.25 * 8),
       scoring + 2 * 3 * 8 * 5},
      {"warm-ups", [](CaseJob& job) { job.warmup = 4; }, timing + 2 * 2 * 3 * 8, scoring},
      {"blocks", [](CaseJob& job) { job.blocks = 11; }, timing + 2 * 2 * (8 * 8 + 24),
       scoring + 2 * 8 * 8 * 5},
      {"rows", [](CaseJob& job) { job.ids.assign(41, 3); }, timing + 2 * 20, scoring + 20},
      {"prefills", [](CaseJob& job) { job.ids.clear(), job.n_prompt = 40, job.n_gen = 0; },
       2 * (2 * 7 * kPrefillCheckTokens + 4 * 26.5), 66.5 + 20 + 2 * 3 * kPrefillCheckTokens * 5},
      {"processes", [](CaseJob& job) { job.processes = 3; }, 2 * (2 * (6 * 8 + 3 * 24) + 3 * 66.5),
       scoring},
      {"one at a time", [](CaseJob& job) { job.one_at_a_time = true; },
       2 * (2 * (6 * 8 + 1.25 * 24) + 3 * 66.5), scoring},
      {"the ceiling", [](CaseJob& job) { job.no_ceiling.clear(); }, timing + 4000 + 1500 + 3 * 100,
       scoring},
      {"an engine less", [](CaseJob& job) { job.engines[0].yardstick = false; }, timing / 2,
       66.5 + 3 * 8 * 5},
      {"judged before", [](CaseJob& job) { job.judged.emplace(); }, timing + 2 * 60, scoring},
      {"a card", [](CaseJob& job) { job.device = "cuda"; }, timing + 2 * (60 + 8 * 2), scoring},
      // 1.5 s of samples of 16 ms, and a second of warm-up, in each process.
      {"by time",
       [](CaseJob& job) {
         job.processes = 2;
         job.blocks_by_time = job.warmup_by_time = true;
       },
       2 * (2 * (188 * 8 + (2 + 186 / 8.0) * 24) + 2 * 1066.5), 66.5 + 2 * 188 * 8 * 5},
  };
  for (const Row& row : rows) {
    Bench bench;
    pace(bench);
    row.change(bench.job);
    const Forecast forecast = forecast_of(bench);
    INFO(row.what);
    CHECK((forecast.unknown.empty() && forecast.refusals.empty()));
    CHECK(1e3 * forecast.timing_s == Approx(row.timing_ms).epsilon(1e-3));
    CHECK(1e3 * forecast.scoring_s == Approx(row.scoring_ms).epsilon(1e-3));
    // Two engines walk 16 steps with logits and without; a third walk needs only its prefill. The run
    // with an fp32 head has one walk.
    const double judging = 2 * (60 + 16 * 7 + 3 * 6.5) + 60 + 16 * 5 + 6.5;
    CHECK(1e3 * forecast.judging_s == Approx(bench.job.judged ? 0 : judging).epsilon(1e-3));
  }
}

TEST_CASE("published ids are foretold for the engines, and not for the run with an fp32 head") {
  Bench bench;
  pace(bench);
  const double judging = 1e3 * forecast_of(bench).judging_s;
  bench.references.push_back(bench.references[0]);
  bench.references[1].token_only = true;
  CHECK(1e3 * forecast_of(bench).judging_s - judging ==
        Approx(2 * (16 * 7 + 3 * 6.5)).epsilon(1e-3));
}

TEST_CASE("`parity` is foretold with its trials, each up to the time budget") {
  Bench bench;
  pace(bench);
  bench.job.whole_parity = true;
  bench.job.engines[0].yardstick = false;
  const double judging = 1e3 * forecast_of(bench).judging_s;
  const double repeat = 16 * 3 + 6.5 + 32;  // a judged step: 3 ms above two bare ones
  double own = 54 * repeat + 256 * 3;
  for (const auto& [rows, steps] : edge_prefills(256)) own += 6.5 + 0.5 * rows + steps * 3;
  const double fresh = 3 * (2000 + 2 * repeat), prompts = 529.5;
  CHECK(judging == Approx(prompts + own + 256 * (2 + 3) + fresh).epsilon(1e-3));
  bench.job.time_budget_s = 1;
  CHECK(1e3 * forecast_of(bench).judging_s == Approx(prompts + 2 * 1000 + fresh).epsilon(1e-3));
}

TEST_CASE("a live reference is foretold with its three captures") {
  Bench bench;
  pace(bench);
  bench.references.clear();
  double steps = 0, prefills = 0;
  for (const Ids& ids : live_parity_prompts(bench.job, bench.services.config("").shape, {})) {
    steps += kLiveSteps;
    prefills += 6 + 0.5 * static_cast<double>(ids.size());
  }
  CHECK(1e3 * forecast_of(bench).judging_s ==
        Approx(4 * 60 + 3 * (2 * steps + prefills) + 2 * (6 * steps + 3 * prefills) + 4 * steps +
               prefills)
            .epsilon(1e-3));
}

TEST_CASE("the pace of a slow engine is measured by few calls") {
  for (const bool slow : {false, true}) {
    Bench bench;
    int decodes = 0;
    size_t rows = 0;
    bench.job.engines.pop_back();
    bench.references.clear();
    bench.scripts["eager"].before = [&](int) { ++decodes, bench.pass_ms(slow ? 501 : 1); };
    bench.scripts["eager"].prefills = [&](size_t ids) {
      rows += ids, bench.pass_ms(slow ? 3001 : 1);
    };
    forecast_of(bench);
    CHECK(decodes == (slow ? 1 : 1 + 6));
    CHECK(rows == (slow ? 64 + 5 + 64 : 6 * 64 + 6 * 5 + 64 + 6 * 64));
  }
}

TEST_CASE("a run is measured if it has 2500 steps, or they read 100 GB") {
  const auto is_measured = [](const std::function<void(Bench&)>& change) {
    Bench bench;
    change(bench);
    return forecast_of(bench, false).unknown.empty();
  };
  // Twelve steps judged nine times; two engines decode 6.5 times a token, and 2.5 times 16 more.
  CHECK_FALSE(is_measured([](Bench& bench) { bench.job.n_gen = 177; }));
  CHECK(is_measured([](Bench& bench) { bench.job.n_gen = 178; }));
  CHECK(is_measured([](Bench& bench) { bench.references.clear(); }));
  CHECK(is_measured([](Bench& bench) { bench.job.whole_parity = true; }));
  CHECK(is_measured([](Bench& bench) { bench.job.blocks_by_time = true; }));
  for (const bool large : {false, true}) {
    CHECK(is_measured([=](Bench& bench) {
            bench.services.config = [config = bench.services.config, large](const std::string& m) {
              ModelConfig c = config(m);
              c.shape = large ? kQwen3_0_6B : kTiny;
              c.shape.vocab = kVocab;
              return c;
            };
          }) == large);
  }
}

TEST_CASE("what cannot end well is told with the verdict that it would end with") {
  Bench bench;
  slow_down(bench);
  bench.job.time_budget_s = 0.01;  // three times twelve steps take 36 ms
  bench.job.n_gen = 50;
  Forecaster forecaster(0.02);
  forecaster.measure(bench.job, bench.services, true);
  const Forecast forecast = forecaster.forecast(bench.job);
  REQUIRE(forecast.refusals.size() == 3);
  CHECK(forecast.refusals[0].first == Verdict::kIncomplete);
  CHECK(holds(forecast.refusals[0].second, "judging kernel"));
  CHECK(holds(forecast.refusals[0].second, "--time-budget is 0.01 s"));
  CHECK(forecast.refusals[1].first == Verdict::kTimeout);
  CHECK(holds(forecast.refusals[1].second, "a decode of 50 tokens by eager"));
}

TEST_CASE("a short run is not measured, nor is an engine that fails or comes from a file") {
  Bench bench;
  Forecaster shortly(300);
  shortly.measure(bench.job, bench.services, false);
  CHECK(shortly.forecast(bench.job).unknown == std::vector<std::string>{"eager", "kernel"});
  CHECK(shortly.forecast(bench.job).seconds() < 0.5);

  bench.scripts["kernel"].before = [](int) { throw Error(ErrorKind::kCuda, "broken"); };
  bench.job.engines.push_back({.name = "mine.so", .asked = "mine.so", .candidate = true});
  bench.job.n_gen = 2000;
  Forecaster forecaster(300);
  forecaster.measure(bench.job, bench.services, false);
  const Forecast forecast = forecaster.forecast(bench.job);
  CHECK(forecast.unknown == std::vector<std::string>{"kernel", "mine.so"});
  REQUIRE(forecast.refusals.size() == 1);  // judged and timed, said once
  CHECK(forecast.refusals[0].first == Verdict::kCudaError);
  CHECK(holds(forecast.refusals[0].second, "kernel: broken"));
  CaseJob other = bench.job;
  std::erase_if(other.engines, [](const CaseEngine& e) { return e.name == "kernel"; });
  CHECK(forecaster.forecast(other).refusals.empty());
  bench.scripts["kernel"].before = nullptr;
  bench.scripts["eager-fp32"].before = [](int) { throw Error(ErrorKind::kCuda, "no truth"); };
  Forecaster without(300);
  without.measure(bench.job, bench.services, false);
  REQUIRE(without.forecast(bench.job).refusals.size() == 1);
  CHECK(holds(without.forecast(bench.job).refusals[0].second, "no truth"));
}

TEST_CASE(
    "stated memory is that of the engines, the processes and the runs that are open together") {
  struct Row {
    const char* what;
    std::function<void(CaseJob&)> change;
    std::map<std::string, int64_t> bytes;  // where they differ
    int64_t needed, with_ceiling;
  };
  const auto none = [](CaseJob&) {};
  const auto one = [](CaseJob& job) { job.one_at_a_time = true; };
  const auto judged = [](CaseJob& job) { job.judged.emplace(); };
  const auto untimed = [](CaseJob& job) { job.engines[0].yardstick = false; };
  const auto both = [](auto first, auto then) {
    return [=](CaseJob& job) { first(job), then(job); };
  };
  const std::vector<Row> rows = {
      // The judge, its run and the truth; the ceiling beside both engines.
      {"all open", none, {}, 1001 + 4004 + 8000, 1001 + 2002 + 16'016},
      {"one open", one, {}, 1001 + 4004 + 8000, 16'016},
      {"a large kernel", none, {{"kernel", 50'000}}, 51'003 + 4, 51'003 + 16'016},
      {"a large kernel alone", one, {{"kernel", 50'000}}, 50'002, 50'002},
      // The truth after the engines, whose processes stay.
      {"judged before", judged, {}, 3 + 8004, 1001 + 2002 + 16'016},
      {"judged, one open", both(judged, one), {}, 8004, 16'016},
      {"judged, a small truth", judged, {{"eager-fp32", 9}, {"eager-head-fp32", 9}}, 3003, 19'019},
      {"judged, a large truth", judged, {{"eager-fp32", 90'000}}, 90'007, 90'023},
      {"judged, one open, a large truth",
       both(judged, one),
       {{"eager-fp32", 90'000}},
       90'004,
       90'004},
      {"judged, a large run", judged, {{"eager-head-fp32", 90'000}}, 90'007, 90'023},
      {"the baseline is not timed", untimed, {{"eager", 2}}, 3 + 12'004, 2002 + 16'016},
      {"judged, the baseline is not timed", both(judged, untimed), {}, 2 + 8004, 2002 + 16'016},
      {"no ceiling", [](CaseJob& job) { job.no_ceiling = "off"; }, {}, 13'005, 13'005},
  };
  for (const Row& row : rows) {
    Bench bench;
    bench.job.no_ceiling.clear();
    row.change(bench.job);
    std::map<std::string, int64_t> bytes = row.bytes;
    bytes.insert(
        {{"eager", 1000}, {"kernel", 2000}, {"eager-head-fp32", 4000}, {"eager-fp32", 8000}});
    bytes.insert({kCeilingName, 16'000});
    std::map<std::string, int64_t> processes = {
        {"eager", 1}, {"kernel", 2}, {"eager-head-fp32", 4}, {kCeilingName, 16}};
    std::vector<std::string> asked;
    bench.services.expect = [&](const auto& names) { asked = names; };
    bench.services.bytes = [&](const EngineRequest& request, const ModelConfig&) {
      return bytes.at(request.name);
    };
    bench.services.process_bytes = [&](const std::string& name, const CaseShapes&) {
      CHECK(std::count(asked.begin(), asked.end(), name) ==
            (bench.job.judged && name == "eager-head-fp32" ? 0 : 1));
      return processes.at(name);
    };
    bench.services.shared_bytes = [](const ModelConfig&) { return int64_t{100'000}; };
    const CaseMemory memory = case_memory(bench.job, bench.services, bench.services.config(""));
    INFO(row.what);
    CHECK(memory.needed == 100'000 + row.needed);
    CHECK(memory.with_ceiling == 100'000 + row.with_ceiling);
  }
}

TEST_CASE("a process meets the lengths of the prompts and those of the timed run, each once") {
  Bench bench;
  CaseShapes seen;
  bench.services.process_bytes = [&](const std::string&, const CaseShapes& shapes) {
    seen = shapes;
    return int64_t{10};
  };
  for (const int depth : {0, 100}) {
    bench.job.ids.assign(static_cast<size_t>(depth) + 1, 3);
    case_memory(bench.job, bench.services, bench.services.config(""));
    CHECK(seen.lengths == (depth > 0 ? 12 + 8 : 12));
    CHECK(seen.prefills == (depth > 0 ? 1 : 0));
  }
}

TEST_CASE("stated memory has room for the run that a near tie of a timed id asks for") {
  Bench bench;
  bench.services.process_bytes = [](const std::string& name, const CaseShapes& shapes) {
    return name == "eager-head-fp32" ? 100'000 * int64_t{shapes.lengths} : int64_t{10};
  };
  const auto needed = [&] {
    return case_memory(bench.job, bench.services, bench.services.config("")).needed;
  };
  // The run's process has met the 12 lengths of the prompt beside the judge, and lives on.
  CHECK(needed() == 12 * 100'000 + 3 * 1000 + 10);
  // Behind the engines' processes, in the truth's place: as many lengths as the engines were timed at.
  bench.job.n_gen = 500;
  CHECK(needed() == 500 * 100'000 + 1000 + 2 * 10);
}

TEST_CASE("what would fit is the depth, else one engine at a time, else fewer engines") {
  Bench bench;
  bench.job.ids.clear();
  bench.job.depth = 200;
  bench.job.engines.push_back({.name = "graph", .asked = "graph", .yardstick = true});
  int64_t free = 0, fixed = 1000, per_position = 10;
  std::string largest;  // takes twice as much
  bench.services.bytes = [&](const EngineRequest& request, const ModelConfig&) {
    const bool runs = request.name == "eager-head-fp32" || request.name == "eager-fp32";
    return (request.name == largest ? 2 : 1) * (runs ? 0 : fixed) +
           per_position * request.max_context;
  };
  bench.services.free_bytes = [&] { return free; };
  const ModelConfig config = bench.services.config("");
  const auto fitting = [&](int64_t bytes) {
    free = bytes;
    return what_would_fit(bench.job, bench.services, config, free);
  };
  const auto needed = [&](const std::function<void(CaseJob&)>& change) {
    CaseJob job = bench.job;
    change(job);
    return case_memory(job, bench.services, config).needed;
  };
  const int64_t at_100 = needed([](CaseJob& job) { job.depth = 100; });
  CHECK(at_100 < needed([](CaseJob&) {}));
  const std::string told = fitting(at_100);
  REQUIRE(holds(told, "what would fit: --n-depth "));
  const int depth = std::stoi(told.substr(told.rfind(' ', told.find(" (") - 1) + 1));
  CHECK(depth >= 100);
  CHECK(needed([&](CaseJob& job) { job.depth = depth; }) <= free);
  CHECK(needed([&](CaseJob& job) { job.depth = depth + 1; }) > free);

  bench.job.ids.assign(201, 3);
  CHECK(holds(fitting(at_100), fmt::format("what would fit: {} of the --ids (", depth + 1)));
  bench.job.ids.clear();

  // All engines do not fit, whatever the depth; each alone does.
  const int64_t together = needed([](CaseJob& job) { job.depth = 0; });
  CHECK(holds(fitting(together - 1), "what would fit: --resident one"));

  // One of them takes more without KV rows than the others do at the depth that was asked for.
  largest = "graph";
  fixed = 100'000;
  bench.job.one_at_a_time = true;
  CHECK(fitting(needed([](CaseJob& job) {
          job.engines.pop_back();
        })).starts_with("what would fit: without graph ("));
  largest = "eager";  // which judges the others, and is not left out
  CHECK(holds(fitting(100'000 + per_position * 256), "model of the shape table"));
}

TEST_CASE("what would fit is another model where no engines of this one do") {
  Bench bench;
  const int64_t parameters = kShapeTable[1].shape.parameters(true);
  bench.services.config = [&](const std::string& model) {
    ModelConfig config;
    config.max_positions = 4096;
    config.shape = kShapeTable[3].shape;
    for (const ShapeRow& row : kShapeTable) {
      if (model == synthetic_name(row)) config.shape = row.shape;
    }
    return config;
  };
  bench.services.bytes = [](const EngineRequest&, const ModelConfig& config) {
    return 2 * config.shape.parameters(true);
  };
  bench.services.references = [](const std::string&) { return std::vector<GreedyReference>(); };
  bench.job.model = named(synthetic_name(kShapeTable[3]));
  bench.job.engines[0].yardstick = false;
  bench.services.free_bytes = [&] { return 7 * parameters; };  // three engines of 1.7B
  const ModelConfig config = bench.services.config(bench.job.model.name);
  const CaseMemory memory = case_memory(bench.job, bench.services, config);
  CHECK_FALSE(memory.fits());
  const std::string told = memory_refusal(bench.job, bench.services, config, memory);
  CHECK(holds(told, "memory of cpu: "));
  CHECK(holds(told, " MB needed, 12044 MB free; "));
  CHECK(holds(told, "what would fit: --model synthetic:qwen3-1.7b with these engines (10323 MB)"));
  CHECK(holds(what_would_fit(bench.job, bench.services, config, 1000),
              "no model of the shape table, not even without KV rows"));
}

TEST_CASE("a case that does not fit is refused before anything is loaded, with what would fit") {
  Bench bench;
  int loads = 0;
  const auto load = bench.services.load;
  bench.services.load = [&](const std::string& model, int depth) {
    ++loads;
    return load(model, depth);
  };
  bench.services.free_bytes = [] { return int64_t{2999}; };
  const CaseReport c = bench.run();
  CHECK(c.verdict == Verdict::kEnvUnfit);
  CHECK(loads == 0);
  CHECK(holds(c.reasons.at(0), "what would fit: "));
}

}  // namespace
}  // namespace mkbench::testing
