// What a format costs, in the flow of a case: which models compute which ids, and when.
#include <string>
#include <vector>

#include "harness/flow/format_cost.h"
#include "tests/support/case_bench.h"
#include "tests/support/catch2.h"

namespace mkbench::testing {
namespace {

// Two models whose truth differs in the second-best logit.
struct CostBench : Bench {
  std::vector<std::string> settings;  // of the truth, as it was opened
  std::vector<int> open_beside;       // engines that were open then
  std::vector<size_t> prefilled;

  CostBench() {
    job.original = Model{.row = nullptr, .name = "whole", .folder = "/whole"};
    const auto make = services.make_engine;
    services.make_engine = [this, make](const EngineRequest& request, const ModelWeights& weights) {
      if (request.name == judge_runs(job).truth) {
        settings.push_back(request.settings);
        open_beside.push_back(open);
        Script& script = scripts[request.name];
        script.runner_up = request.settings.empty() ? 9.0F : 1.0F;
        script.prefills = [this](size_t ids) { prefilled.push_back(ids); };
      }
      return make(request, weights);
    };
  }

  FormatCost cost() {
    EventSink sink([](const CaseEvent&) {});
    ProgressWatch watch(sink);
    return cost_of_format(job, services, services.load("", 0), references, 64, watch);
  }
};

TEST_CASE("both truths compute the references' ids, one after the other, beside no engine") {
  CostBench bench;
  bench.references[0].prompts[0].text = "x";
  bench.references[0].prompts[0].ids = {1, 2, 3};  // two ids of text are predicted
  bench.references[0].prompts.push_back(scripted_reference().prompts[0]);
  bench.references[0].prompts[1].name = "two";
  bench.job.max_kl = 7;
  const FormatCost cost = bench.cost();
  CHECK(bench.settings == std::vector<std::string>{"", "original=/whole"});
  CHECK(bench.most_open == 1);
  CHECK(bench.prefilled == std::vector<size_t>{1, 1, 1, 1});
  CHECK(cost.original == "whole");
  CHECK(cost.limit == 7);
  CHECK(cost.steps == 2 + 2 * kSteps);
  CHECK(cost.text_steps == 2);
  CHECK(cost.kl > 0.1);
  CHECK(cost.kl == Approx(cost.largest_kl));
  CHECK(cost.same_top == 1);
}

TEST_CASE("long references are cut, each alike") {
  CostBench bench;
  const ReferencePrompt one = bench.references[0].prompts[0];
  bench.references[0].prompts.assign(50, one);  // of 12 steps; 512 / 50 are 10
  bench.references.push_back(bench.references[0]);
  bench.references[1].token_only = true;
  const FormatCost cost = bench.cost();
  CHECK(cost.steps == 50 * 10);
  CHECK(cost.text_steps == 0);
}

TEST_CASE(
    "a cost is told once parity is judged, of a model that a candidate has quantised itself") {
  const CaseEngine named_kernel{.name = "kernel", .asked = "kernel", .candidate = true};
  Contestant one(named_kernel), two(named_kernel);
  const std::vector<Contestant*> all = {&one, &two};
  CaseJob job;
  job.model = named("scripted");
  job.model.folder = "/whole";
  CHECK_FALSE(tells_cost(job, all));
  job.original = job.model;
  CHECK_FALSE(tells_cost(job, all));
  two.own_weights = true;
  CHECK(tells_cost(job, all));
  two.own_weights = false;
  job.original->folder = "/other";
  CHECK(tells_cost(job, all));
  CHECK_FALSE(tells_cost(job, {}));
  job.judged = JudgedCase{};
  CHECK_FALSE(tells_cost(job, all));
}

TEST_CASE("it is told at the end, beside no engine, and not where the candidate has failed") {
  for (const bool parity : {false, true}) {
    CostBench bench;
    bench.job.whole_parity = parity;
    CHECK(bench.run().format_cost.has_value());
    CHECK(bench.open_beside.at(bench.open_beside.size() - 2) == 0);
    CHECK(std::holds_alternative<FormatCostFound>(bench.messages.at(bench.messages.size() - 2)));
    CostBench wrong;
    wrong.job.whole_parity = parity;
    wrong.scripts["kernel"].wrong = [](int, int position) { return position == 3; };
    const CaseReport c = wrong.run();
    CHECK(engine_of(c, "kernel").verdict == Verdict::kFailToken);
    CHECK_FALSE(c.format_cost.has_value());
  }
}

}  // namespace
}  // namespace mkbench::testing
