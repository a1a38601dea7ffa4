// --truth dequantised in the flow of a case: whose values are taken, when, and what follows.
#include <optional>
#include <string>
#include <vector>

#include "references/base/error.h"
#include "tests/support/case_bench.h"
#include "tests/support/catch2.h"

namespace mkbench::testing {
namespace {

// The names of engines that were made and what was taken, in their order.
struct Taking : Bench {
  std::vector<std::string> order;
  std::optional<StatedWeights> taken;
  StatedWeights says{"", true};

  Taking() {
    job.model.dequantised = true;
    const auto make = services.make_engine;
    services.make_engine = [this, make](const EngineRequest& request, const ModelWeights& weights) {
      order.push_back(request.name);
      return make(request, weights);
    };
    services.take_values = [this](Engine& engine) {
      order.push_back("taken of " + engine.capabilities().name);
      taken = says;
      return says;
    };
    services.values_taken = [this] { return taken; };
  }
};

TEST_CASE("what the candidate says is taken before anything is judged, once a run") {
  Taking bench;
  const CaseReport c = bench.run();
  REQUIRE(bench.order.size() > 3);
  CHECK(bench.order[0] == "kernel");
  CHECK(bench.order[1].starts_with("taken of "));
  CHECK(bench.order[2] == "eager");
  CHECK(engine_of(c, "kernel").verdict == Verdict::kPass);
  CHECK(engine_of(c, "kernel").own_weights);
  CHECK_FALSE(engine_of(c, "eager").own_weights);

  bench.order.clear();
  const CaseReport second = bench.run();
  CHECK(bench.order[0] == "eager");
  CHECK(engine_of(second, "kernel").own_weights);

  bench.taken->own = false;
  CHECK_FALSE(engine_of(bench.run(), "kernel").own_weights);

  Taking other;
  other.job.model.dequantised = false;
  CHECK_FALSE(engine_of(other.run(), "kernel").own_weights);
  CHECK_FALSE(other.taken.has_value());
}

TEST_CASE("values that cannot be right are the candidate's failure, in each case") {
  Taking bench;
  bench.says.problem = "dequantised('a'): holds NaN or Inf";
  for (int i = 0; i < 2; ++i) {
    bench.order.clear();
    const CaseReport c = bench.run();
    CHECK(engine_of(c, "kernel").verdict == Verdict::kFailFidelity);
    CHECK(reason_of(engine_of(c, "kernel")) == bench.says.problem);
    CHECK(engine_of(c, "eager").verdict == Verdict::kSkipped);
    CHECK(holds(reason_of(engine_of(c, "eager")), "no candidate is left"));
    CHECK(bench.order.size() == (i == 0 ? 2 : 0));
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

TEST_CASE("an engine that says nothing, or cannot be opened, ends the case") {
  Taking bench;
  bench.services.take_values = [](Engine&) -> StatedWeights {
    throw Error(ErrorKind::kBadInput, "gives the values of no weight");
  };
  const CaseReport c = bench.run();
  CHECK(engine_of(c, "kernel").verdict == Verdict::kBadInput);
  CHECK(holds(reason_of(engine_of(c, "kernel")), "gives the values of no weight"));
  CHECK(bench.order == std::vector<std::string>{"kernel"});
}

}  // namespace
}  // namespace mkbench::testing
