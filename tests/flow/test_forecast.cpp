// What a case is said to take before it begins, against what it takes.
#include <fmt/format.h>

#include "harness/flow/case_memory.h"
#include "harness/flow/forecast.h"
#include "references/base/error.h"
#include "references/model_row.h"
#include "references/synthetic.h"
#include "tests/support/case_bench.h"

namespace mkbench::testing {
namespace {

// Every token of every engine takes a millisecond.
void slow_down(Bench& bench) {
  for (const char* name : {"eager", "kernel", kTruthName, kHeadFp32Name}) {
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

// The forecast of a case over the time that it takes, by the bench's clock.
double foretold_share(Bench& bench) {
  const Forecast forecast = forecast_of(bench);
  CHECK(forecast.unknown.empty());
  CHECK(forecast.refusals.empty());
  const double begin = bench.now_s;
  CHECK(engine_of(bench.run(), "kernel").verdict == Verdict::kPass);
  return forecast.seconds() / (bench.now_s - begin);
}

TEST_CASE("the forecast of a case is within 30 % of the time that it takes") {
  Bench bench;
  slow_down(bench);
  bench.job.blocks = bench.job.max_blocks = 6;
  CHECK(foretold_share(bench) == Approx(1).epsilon(0.3));
}

TEST_CASE("a prefill that takes all rows in one pass costs a pass, and another one its rows") {
  const auto timing_s = [](bool one_pass) {
    Bench bench;
    for (const char* name : {"eager", "kernel", kTruthName, kHeadFp32Name}) {
      bench.scripts[name].prefills = [&bench, one_pass](size_t ids) {
        bench.pass_ms(one_pass ? 6.4 : 0.1 * static_cast<double>(ids));
      };
    }
    bench.job.ids.clear();
    Forecaster forecaster(300);
    forecaster.measure(bench.job, bench.services, true);
    bench.job.n_prompt = 1000;
    return forecaster.forecast(bench.job).timing_s;
  };
  // Two engines, each with a prefill before its three blocks and one in each.
  CHECK(timing_s(true) == Approx(8 * 0.0064).epsilon(0.1));
  CHECK(timing_s(false) == Approx(8 * 0.1).epsilon(0.1));
}

TEST_CASE("the forecast counts processes: their opening, prefill and warm-up") {
  Bench bench;
  slow_down(bench);
  const auto make = bench.services.make_engine;
  bench.services.make_engine = [&](const EngineRequest& request, const ModelWeights& weights) {
    bench.pass_ms(60);
    return make(request, weights);
  };
  bench.job.processes = bench.job.blocks = bench.job.max_blocks = 6;
  CHECK(foretold_share(bench) == Approx(1).epsilon(0.3));
}

TEST_CASE("the forecast of a case by time has its samples and its warm-ups") {
  Bench bench;
  slow_down(bench);
  bench.job.processes = 2;
  bench.job.blocks_by_time = bench.job.warmup_by_time = true;
  // Two engines with three seconds of samples each, and a second of warm-up in each of two processes;
  // an eighth of the blocks goes on by eight steps and repeats all of them.
  const double timing_s = forecast_of(bench, false).timing_s;  // no short run
  CHECK(timing_s > 9);
  CHECK(timing_s < 15);
}

TEST_CASE("the forecast has time for the search of the ceiling, and for each of its openings") {
  Bench bench;
  bench.job.blocks = bench.job.max_blocks = 6;
  Forecaster forecaster(300);
  forecaster.measure(bench.job, bench.services, true);
  const auto timing_s = [&](bool ceiling, bool one_at_a_time) {
    CaseJob job = bench.job;
    if (ceiling) job.no_ceiling.clear();
    job.one_at_a_time = one_at_a_time;
    return forecaster.forecast(job).timing_s;
  };
  CHECK(timing_s(true, false) > timing_s(false, false) + 4);
  CHECK(timing_s(true, true) > timing_s(false, true) + 4 + 6);
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
  CHECK(forecaster.forecast(bench.job).unknown == std::vector<std::string>{"kernel", "mine.so"});
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

TEST_CASE("stated memory counts processes and what all engines share") {
  Bench bench;
  std::vector<std::string> asked;
  CaseShapes seen;
  bench.services.process_bytes = [&](const std::string& name, const CaseShapes& shapes) {
    asked.push_back(name);
    seen = shapes;
    return int64_t{10};
  };
  bench.services.shared_bytes = [](const ModelConfig&) { return int64_t{7}; };
  const CaseMemory memory = case_memory(bench.job, bench.services, bench.services.config(""));
  // eager and the two runs of the judge, in two processes; the kernel opens when the runs are over.
  CHECK(memory.needed == 3 * 1000 + 2 * 10 + 7);
  CHECK(seen.lengths == 12);  // of the reference's prompt; those of the timed one are among them
  CHECK(seen.prefills == 0);
  bench.job.depth = 100;
  bench.job.ids.clear();
  case_memory(bench.job, bench.services, bench.services.config(""));
  CHECK(seen.lengths == 12 + 8);
  CHECK(seen.prefills == 1);
}

TEST_CASE("stated memory has room for the run that a near tie of a timed id asks for") {
  Bench bench;
  bench.services.process_bytes = [](const std::string& name, const CaseShapes& shapes) {
    return name == kHeadFp32Name ? 100'000 * int64_t{shapes.lengths} : int64_t{10};
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

TEST_CASE("stated memory has room for the truth where no closed form covers the depth") {
  Bench bench;
  bench.job.ids.clear();
  bench.services.bytes = [](const EngineRequest& request, const ModelConfig&) {
    return int64_t{request.name == kTruthName ? 50'000 : 1000};
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

TEST_CASE("what would fit is the depth, else one engine at a time, else fewer engines") {
  Bench bench;
  bench.job.ids.clear();
  bench.job.depth = 200;
  bench.job.engines.push_back({.name = "graph", .asked = "graph", .yardstick = true});
  int64_t free = 0, fixed = 1000, per_position = 10;
  std::string largest;  // takes twice as much
  bench.services.bytes = [&](const EngineRequest& request, const ModelConfig&) {
    const bool runs = request.name == kHeadFp32Name || request.name == kTruthName;
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
