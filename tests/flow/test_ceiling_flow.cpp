// The ceiling in the flow of a case: timed in the blocks of the others, never judged, and nobody pays
// for its end.
#include <string>
#include <vector>

#include "harness/flow/ceiling.h"
#include "references/base/error.h"
#include "tests/support/case_bench.h"
#include "tests/support/catch2.h"

namespace mkbench {
namespace {

using testing::Bench;
using testing::engine_of;

struct CeilingBench : Bench {
  CeilingBench() { add_ceiling(); }
};

bool sent_parity_of(const Bench& bench, const std::string& name) {
  for (const CaseEvent& message : bench.messages) {
    const auto* judged = std::get_if<ParityJudged>(&message);
    if (judged != nullptr && judged->engine == name) return true;
  }
  return false;
}

TEST_CASE("the ceiling is timed in every block of the others, and is not judged") {
  CeilingBench bench;
  bench.job.depth = 0;
  bench.job.blocks = bench.job.max_blocks = 8;
  std::vector<EngineRequest> made;
  const auto make = bench.services.make_engine;
  bench.services.make_engine = [&](const EngineRequest& request, const ModelWeights& weights) {
    made.push_back(request);
    return make(request, weights);
  };
  const CaseReport c = bench.run();
  CHECK(c.engines.size() == 2);
  for (const EngineReport& e : c.engines) {
    CHECK(e.verdict == Verdict::kPass);
    CHECK(e.samples.size() == 8);
    CHECK(e.share.value.has_value());
    CHECK(e.share_ci.has_value());
  }
  CHECK(c.comparisons.size() == 1);
  CHECK_FALSE(sent_parity_of(bench, kCeilingName));
  CHECK(sent_parity_of(bench, "kernel"));
  CHECK(c.ceiling.reason.empty());
  CHECK(c.ceiling.resolved_name == kCeilingName);
  REQUIRE(c.ceiling.samples.size() == 8);
  std::vector<int> places(3);
  for (size_t b = 0; b < 8; ++b) {
    const Sample& s = c.ceiling.samples[b];
    CHECK(s.block == static_cast<int>(b));
    ++places[static_cast<size_t>(s.order)];
    CHECK(s.valid);
    // Passes of 6 ms until 20 are over.
    CHECK(s.tokens == 4 * bench.job.n_gen);
    CHECK(s.ms_per_token() == Approx(6.0 / bench.job.n_gen).epsilon(0.01));
  }
  CHECK(places == std::vector<int>{4, 0, 4});  // abba: last, first, first, last
  CHECK(bench.timed_calls == bench.ended_calls);
  CHECK(bench.loose_calls == 0);
  // Only the ceiling is told the depth, because it has to be ready when it is open.
  for (const EngineRequest& request : made) CHECK(request.depth == 0);
  bench.job.ids = {3, 1, 4, 1, 5};
  made.clear();
  bench.run();
  for (const EngineRequest& request : made)
    CHECK(request.depth == (request.name == kCeilingName ? 4 : 0));
}

TEST_CASE("the ceiling searches in its first process, and the others take what it has found") {
  CeilingBench bench;
  bench.job.processes = 3;
  bench.job.blocks = bench.job.max_blocks = 6;
  std::vector<std::string> patterns;
  const auto make = bench.services.make_engine;
  bench.services.make_engine = [&](const EngineRequest& request, const ModelWeights& weights) {
    if (request.name == kCeilingName) patterns.push_back(request.settings);
    CHECK((request.name == kCeilingName || request.settings.empty()));
    return make(request, weights);
  };
  const auto facts = bench.services.facts;
  bench.services.facts = [&](Engine& engine) {
    EngineFacts known = facts(engine);
    if (known.resolved_name == kCeilingName) known.settings = "plain loads of 16 bytes";
    return known;
  };
  const CaseReport c = bench.run();
  CHECK(patterns ==
        std::vector<std::string>{"", "plain loads of 16 bytes", "plain loads of 16 bytes"});
  CHECK(c.ceiling.settings == "plain loads of 16 bytes");
}

TEST_CASE("the end of the ceiling costs nobody anything") {
  struct End {
    const char* what;
    std::function<void(Bench&)> plan;
    size_t samples;
  };
  const auto dies_at = [](int decode, ErrorKind kind) {
    return [=](Bench& bench) {
      bench.scripts[kCeilingName].before = [&bench, decode, kind](int n) {
        bench.pass_ms(21);
        if (n == decode) throw Error(kind, "the ceiling's end");
      };
    };
  };
  const End ends[] = {
      {"when it opens",
       [](Bench& bench) {
         const auto make = bench.services.make_engine;
         bench.services.make_engine = [make](const EngineRequest& request,
                                             const ModelWeights& weights) {
           if (request.name == kCeilingName) throw Error(ErrorKind::kEnvUnfit, "the ceiling's end");
           return make(request, weights);
         };
       },
       0},
      {"in the warm-up", dies_at(1, ErrorKind::kHang), 0},
      {"in the second block", dies_at(3, ErrorKind::kCuda), 1},
      {"by clocks that go on to disagree",
       [](Bench& bench) { bench.scripts[kCeilingName].event_ms = [](int) { return 500.0; }; }, 0},
  };
  for (const End& end : ends) {
    INFO(end.what);
    CeilingBench bench;
    end.plan(bench);
    const CaseReport c = bench.run();
    CHECK_FALSE(c.ceiling.reason.empty());
    CHECK(c.ceiling.samples.size() == end.samples);
    CHECK(c.verdict == Verdict::kSkipped);  // what the case itself says: nothing
    CHECK(c.reasons.empty());
    for (const EngineReport& e : c.engines) {
      CHECK(e.verdict == Verdict::kPass);
      CHECK(e.samples.size() == 3);
      CHECK(e.ms_per_tok.has_value());
      CHECK(e.share.value.has_value() == (end.samples > 0));
      if (end.samples == 0) CHECK(e.share.reason == c.ceiling.reason);
    }
  }
}

TEST_CASE("the ceiling is not timed alone") {
  CeilingBench bench;
  for (const char* name : {"eager", "kernel"}) {
    // The first decode after the gate.
    bench.scripts[name].skip = [n = 0](int) mutable { return ++n > 3; };
  }
  const CaseReport c = bench.run();
  CHECK(c.ceiling.samples.size() <= 1);
}

TEST_CASE("a card too small for the ceiling's copy has none and says why") {
  CeilingBench bench;
  bench.services.bytes = [](const EngineRequest& request, const ModelConfig&) {
    return int64_t{request.name == kCeilingName ? 5000 : 1000};
  };
  bench.services.free_bytes = [] { return int64_t{6999}; };
  const CaseMemory memory = case_memory(bench.job, bench.services, bench.services.config(""));
  CHECK(memory.with_ceiling == 7000);
  CHECK(memory.needed < 6999);
  CHECK(memory.taken() == memory.needed);
  const CaseReport c = bench.run();
  CHECK(holds(c.ceiling.reason, "free"));
  CHECK(c.ceiling.samples.empty());
  for (const EngineReport& e : c.engines) {
    CHECK(e.samples.size() == 3);
    CHECK(holds(e.share.reason, "the ceiling's copy"));
  }
  CeilingBench enough;
  enough.services.bytes = bench.services.bytes;
  enough.services.free_bytes = [] { return int64_t{7000}; };
  CHECK(enough.run().ceiling.samples.size() == 3);
  CHECK(case_memory(enough.job, enough.services, enough.services.config("")).taken() == 7000);
}

TEST_CASE(
    "an outline has a ceiling once it is known what a step reads, and L2 does not hold that") {
  struct Row {
    StepReads reads;
    std::string reason;
  };
  for (const Row& row :
       {Row{{.unknown = "nobody knows"}, "what a step reads is not known: nobody knows"},
        Row{{.fixed = 399, .rows = {{1, 100}}}, ""},
        Row{{.fixed = 399}, "weights and KV (0.0 MB) are under 4 x L2 (0.0 MB)"},
        Row{{.fixed = 400}, ""}}) {
    CeilingBench bench;
    bench.job.ids = {1, 1};  // one KV row before the first step
    bench.job.l2_bytes = 100;
    const auto config = bench.services.config;
    bench.services.config = [&](const std::string& name) {
      ModelConfig outline = config(name);
      outline.outline_bytes = 1000;
      outline.reads = row.reads;
      return outline;
    };
    const CaseReport c = bench.run();
    CHECK(c.ceiling.reason == row.reason);
    CHECK(c.ceiling.samples.size() == (row.reason.empty() ? 3 : 0));
    for (const EngineReport& e : c.engines) CHECK(e.share.reason == row.reason);
  }
}

TEST_CASE(
    "engines that fit only without the ceiling's copy are opened one at a time, for a share") {
  const auto bench_with = [](int64_t free) {
    CeilingBench bench;
    bench.job.may_open_one = true;
    bench.services.bytes = [](const EngineRequest& request, const ModelConfig&) {
      return int64_t{request.name == kCeilingName ? 5'000'000'000 : 1'000'000'000};
    };
    bench.services.free_bytes = [free] { return free; };
    return bench;
  };
  const auto chosen = [](Bench& bench) {
    return choose_residency(bench.job, bench.services, bench.services.config(""));
  };
  CeilingBench bench = bench_with(6'999'000'000);
  CHECK(
      chosen(bench) ==
      "7000 MB are needed for all engines with the ceiling's copy and 6999 MB are free: one engine "
      "is open at a time (--resident one)");
  CHECK(bench.job.one_at_a_time);
  const CaseReport c = bench.run();
  CHECK(c.resident == "one");
  CHECK(c.ceiling.reason.empty());
  CHECK(c.ceiling.samples.size() == 3);
  for (const EngineReport& e : c.engines) CHECK(e.share.value.has_value());

  CeilingBench enough = bench_with(7'000'000'000);
  CHECK(chosen(enough).empty());
  CeilingBench too_small = bench_with(4'999'000'000);  // the ceiling does not fit alone either
  CHECK(chosen(too_small).empty());
  CHECK_FALSE(too_small.job.one_at_a_time);
  CeilingBench no_ceiling = bench_with(6'999'000'000);
  no_ceiling.job.no_ceiling = "no GPU";
  CHECK(chosen(no_ceiling).empty());
  CeilingBench asked_all = bench_with(6'999'000'000);
  asked_all.job.may_open_one = false;
  CHECK(chosen(asked_all).empty());
  CeilingBench ablations = bench_with(6'999'000'000);
  ablations.job.ablations = true;
  CHECK(chosen(ablations).empty());
}

TEST_CASE("engines that do not fit at a time are opened one at a time, with or without a ceiling") {
  CeilingBench bench;
  bench.job.may_open_one = true;
  bench.job.engines.push_back({.name = "plain", .asked = "plain", .candidate = true});
  bench.job.engines.push_back({.name = "other", .asked = "other", .candidate = true});
  bench.services.bytes = [](const EngineRequest& request, const ModelConfig&) {
    return int64_t{request.name == kCeilingName ? 9'000'000'000 : 1'000'000'000};
  };
  bench.services.free_bytes = [] { return int64_t{3'500'000'000}; };
  CHECK(choose_residency(bench.job, bench.services, bench.services.config("")) ==
        "4000 MB are needed for all engines and 3500 MB are free: one engine is open at a time "
        "(--resident one)");
  CHECK(bench.job.one_at_a_time);
}

TEST_CASE(
    "where one engine at a time is too much, the layers of transformers' truth stay on the host") {
  int64_t host_free = 4000;
  bool captured = false;
  const auto chosen = [&](int64_t free, const std::function<void(CaseJob&)>& change) {
    CeilingBench bench;
    bench.services.host_free_bytes = [&] { return host_free; };
    const auto config = bench.services.config;
    bench.services.config = [config](const std::string& name) {
      ModelConfig outline = config(name);
      outline.outline_bytes = outline.outline_values = 1000;
      return outline;
    };
    if (!captured)
      bench.services.references = [](const std::string&) { return std::vector<GreedyReference>{}; };
    bench.job.device = "cuda";
    bench.job.model.truth = Truth::kTransformers;
    bench.job.no_ceiling = "not asked for";
    change(bench.job);
    const JudgeRuns runs = judge_runs(bench.job);
    bench.services.bytes = [runs](const EngineRequest& request, const ModelConfig&) {
      if (request.name != runs.truth) return int64_t{1'000'000'000};
      return int64_t{request.settings == "layers=host" ? 500'000'000 : 4'000'000'000};
    };
    bench.services.free_bytes = [free] { return free; };
    const std::string why = choose_residency(bench.job, bench.services, bench.services.config(""));
    return std::tuple(why, bench.job.one_at_a_time, bench.job.truth_on_host);
  };
  const auto may_open_one = [](CaseJob& job) { job.may_open_one = true; };
  const auto as_asked = [](CaseJob&) {};
  // The judge, its run with an fp32 head and the truth.
  CHECK(chosen(6'000'000'000, may_open_one) == std::tuple("", false, false));
  const auto [why, one, on_host] = chosen(5'999'000'000, may_open_one);
  CHECK(why ==
        "6000 MB are needed for all engines and 5999 MB are free: the truth's layers stay in the "
        "host's "
        "memory, and each comes to the card in every pass: judging takes longer");
  CHECK_FALSE(one);
  CHECK(on_host);
  CHECK(std::get<2>(chosen(5'999'000'000, as_asked)));
  CHECK_FALSE(std::get<2>(chosen(2'499'000'000, may_open_one)));
  CHECK_FALSE(std::get<2>(chosen(5'999'000'000, [](CaseJob& job) { job.device = "cpu"; })));
  CHECK_FALSE(
      std::get<2>(chosen(5'999'000'000, [](CaseJob& job) { job.model.truth = Truth::kMkbench; })));
  const auto [both, one_too, on_host_too] = chosen(3'499'000'000, [](CaseJob& job) {
    job.may_open_one = true;
    job.engines.insert(job.engines.end(), 3,
                       {.name = "other", .asked = "other", .candidate = true});
  });
  CHECK(both.find("(--resident one), and the truth's layers") != both.npos);
  CHECK((one_too && on_host_too));
  host_free = 3999;  // fp32 does not fit there
  CHECK_FALSE(std::get<2>(chosen(5'999'000'000, may_open_one)));
  captured = true;  // then the truth is opened for the timed tokens alone
  CHECK(chosen(4'000'000'000, may_open_one) == std::tuple("", false, false));
}

TEST_CASE("one engine at a time: the ceiling too is opened for each of its turns") {
  CeilingBench bench;
  bench.job.one_at_a_time = true;
  CHECK(bench.run().ceiling.samples.size() == 3);
  CHECK(bench.made[kCeilingName] == 3);
}

TEST_CASE("the ceiling is opened anew in each process, and its samples say in which") {
  CeilingBench bench;
  bench.job.processes = 3;
  bench.job.blocks = bench.job.max_blocks = 7;
  const CaseReport c = bench.run();
  CHECK(bench.made[kCeilingName] == 3);
  const std::vector<Sample>& kernel = engine_of(c, "kernel").samples;
  REQUIRE(c.ceiling.samples.size() == 7);
  REQUIRE(kernel.size() == 7);
  for (size_t i = 0; i < 7; ++i) {
    CHECK(c.ceiling.samples[i].block == kernel[i].block);
    CHECK(c.ceiling.samples[i].process == kernel[i].process);
  }
  CHECK(c.ceiling.ms_per_tok->processes == 3);
  CHECK(engine_of(c, "kernel").share.value.has_value());
}

TEST_CASE("a sample of the ceiling is as many passes as make 20 ms; a doubtful one is repeated") {
  const auto sample = [](double ms, const std::vector<int>& doubtful) {
    int call = 0;
    return ceiling_sample([&, ms](Sample& pass) {
      pass.tokens = 8;
      pass.start_ms = 100 + call;
      pass.times.host_ms = ms;
      pass.times.event_ms = ms - 0.1;
      const bool doubt = std::find(doubtful.begin(), doubtful.end(), call++) != doubtful.end();
      return doubt ? std::string("clocks disagree") : std::string();
    });
  };
  const Sample seven = sample(3, {0, 4});
  CHECK(seven.tokens == 7 * 8);
  CHECK(seven.times.host_ms == Approx(21));
  CHECK(seven.times.event_ms == Approx(7 * 2.9));
  CHECK(seven.start_ms == 101);
  CHECK(seven.repeats == 2);
  CHECK(seven.valid);
  CHECK(sample(50, {}).tokens == 8);
  CHECK(sample(0, {}).tokens == kCeilingPasses * 8);
  CHECK_THROWS_WITH(sample(3, {0, 1, 2}), "clocks disagree");
}

}  // namespace
}  // namespace mkbench
