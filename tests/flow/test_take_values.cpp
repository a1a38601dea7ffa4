// --truth dequantised in the flow of a case: whose values are taken, when, and what follows.
#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "references/base/error.h"
#include "tests/support/case_bench.h"
#include "tests/support/catch2.h"

namespace mkbench::testing {
namespace {

// The names of engines that were made and what was taken, in their order.
struct Taking : Bench {
  std::vector<std::string> order;
  bool taken = false;
  StatedWeights found{"", true};

  Taking() {
    job.model.dequantised = true;
    const auto make = services.make_engine;
    services.make_engine = [this, make](const EngineRequest& request, const ModelWeights& weights) {
      order.push_back(request.name);
      return make(request, weights);
    };
    services.begin_values = [this] { order.push_back("begun"); };
    services.take_values = [this](Engine& engine) {
      order.push_back("taken of " + engine.capabilities().name);
      taken = true;
    };
    services.values_found = [this] { return taken ? std::optional(found) : std::nullopt; };
  }
};

TEST_CASE("what the candidate says is taken before anything is judged, once a run") {
  Taking bench;
  const CaseReport c = bench.run();
  REQUIRE(bench.order.size() > 4);
  CHECK(bench.order[0] == "begun");
  CHECK(bench.order[1] == "kernel");
  CHECK(bench.order[2].starts_with("taken of "));
  CHECK(bench.order[3] == "eager");
  CHECK(engine_of(c, "kernel").verdict == Verdict::kPass);
  CHECK(engine_of(c, "kernel").own_weights);
  CHECK_FALSE(engine_of(c, "eager").own_weights);

  bench.order.clear();
  const CaseReport second = bench.run();
  CHECK(bench.order[0] == "eager");
  CHECK(engine_of(second, "kernel").own_weights);

  bench.found.own = false;
  CHECK_FALSE(engine_of(bench.run(), "kernel").own_weights);

  Taking other;
  other.job.model.dequantised = false;
  CHECK_FALSE(engine_of(other.run(), "kernel").own_weights);
  CHECK_FALSE(other.taken);
}

TEST_CASE("a candidate that says how it keeps its weights settles what a step reads") {
  for (const bool declared : {true, false}) {
    Taking bench;
    bench.job.l2_bytes = 1000;
    bench.add_ceiling();
    bench.found.declared = declared;
    const auto config = bench.services.config;
    bench.services.config = [&bench, config](const std::string& name) {
      ModelConfig known = config(name);
      if (bench.taken && bench.found.declared) known.reads.fixed = 5000;
      return known;
    };
    const CaseReport c = bench.run();
    CHECK(engine_of(c, "kernel").declared_bytes == declared);
    CHECK_FALSE(engine_of(c, "eager").declared_bytes);
    CHECK(c.reads.fixed == (declared ? 5000 : 0));
    CHECK(c.ceiling.reason.empty());
  }
  Taking small;
  small.job.l2_bytes = 10'000;
  small.add_ceiling();
  small.found.declared = true;
  const auto config = small.services.config;
  small.services.config = [&small, config](const std::string& name) {
    ModelConfig known = config(name);
    if (small.taken) known.reads.fixed = 5000;
    return known;
  };
  const CaseReport c = small.run();
  CHECK(holds(c.ceiling.reason, "are under"));
  CHECK(c.ceiling.samples.empty());
  CHECK(engine_of(c, "kernel").verdict == Verdict::kPass);
}

TEST_CASE("values that cannot be right are the candidate's failure, in each case") {
  Taking bench;
  bench.found.problem = "dequantised('a'): holds NaN or Inf";
  for (int i = 0; i < 2; ++i) {
    bench.order.clear();
    const CaseReport c = bench.run();
    CHECK(engine_of(c, "kernel").verdict == Verdict::kFailFidelity);
    CHECK(reason_of(engine_of(c, "kernel")) == bench.found.problem);
    CHECK(engine_of(c, "eager").verdict == Verdict::kSkipped);
    CHECK(holds(reason_of(engine_of(c, "eager")), "no candidate is left"));
    CHECK(bench.order.size() == (i == 0 ? 3 : 0));
  }
}

TEST_CASE("hf and its runs are told where the values are, other engines are not") {
  Bench bench;
  CHECK(hf_settings(bench.job, "eager", "file").empty());
  bench.job.model.truth = Truth::kTransformers;
  CHECK(hf_settings(bench.job, "eager", "file").empty());
  bench.job.model.dequantised = true;
  for (const char* run : {"eager", "eager-fp32", "eager-head-fp32", "hf-static"})
    CHECK(hf_settings(bench.job, run, "file") == "values=file");
  CHECK(hf_settings(bench.job, "kernel", "file").empty());
  bench.job.truth_on_host = true;
  CHECK(hf_settings(bench.job, judge_runs(bench.job).truth, "file") == "layers=host\nvalues=file");
  CHECK(hf_settings(bench.job, "eager", "file") == "values=file");
  bench.job.model.dequantised = false;
  CHECK(hf_settings(bench.job, judge_runs(bench.job).truth) == "layers=host");
}

TEST_CASE("an engine that says nothing, or cannot be opened, has failed") {
  Taking says_nothing;
  says_nothing.services.take_values = [](Engine&) {
    throw Error(ErrorKind::kBadInput, "gives the values of no weight");
  };
  Taking does_not_open;
  const auto make = does_not_open.services.make_engine;
  does_not_open.services.make_engine = [make](const EngineRequest& request,
                                              const ModelWeights& weights) {
    if (request.name == "kernel") throw Error(ErrorKind::kBadInput, "cannot be opened");
    return make(request, weights);
  };
  for (auto& [bench, words] : {std::pair<Taking*, const char*>{&says_nothing, "of no weight"},
                               {&does_not_open, "cannot be opened"}}) {
    const CaseReport c = bench->run();
    CHECK(engine_of(c, "kernel").verdict == Verdict::kBadInput);
    CHECK(holds(reason_of(engine_of(c, "kernel")), words));
    CHECK(engine_of(c, "eager").verdict == Verdict::kSkipped);
    CHECK(std::count(bench->order.begin(), bench->order.end(), "eager") == 0);
  }
}

TEST_CASE("what the truth's process cannot do is not the candidate's failure") {
  for (const bool at_the_begin : {true, false}) {
    Taking bench;
    const auto fail = [] { throw Error(ErrorKind::kTimeout, "the truth: 300 s"); };
    if (at_the_begin) {
      bench.services.begin_values = fail;
    } else {
      bench.services.values_found = [&bench, fail]() -> std::optional<StatedWeights> {
        if (bench.taken) fail();
        return std::nullopt;
      };
    }
    const CaseReport c = bench.run();
    CHECK(c.verdict == Verdict::kTimeout);
    REQUIRE(c.reasons.size() == 1);
    CHECK(holds(c.reasons[0], "the truth: 300 s"));
    CHECK(engine_of(c, "kernel").verdict != Verdict::kTimeout);
    CHECK(bench.order.size() == (at_the_begin ? 0 : 3));
  }
}

}  // namespace
}  // namespace mkbench::testing
