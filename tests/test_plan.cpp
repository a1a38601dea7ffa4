// From options and a probe of the machine to jobs: which engines each model gets.
#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "harness/parent/plan.h"
#include "references/base/error.h"
#include "tests/support/catch2.h"

namespace mkbench {
namespace {

using Names = std::vector<std::string>;

RunPlan plan_of(const std::vector<std::string>& args, const nlohmann::json& probe) {
  const ParsedCommandLine parsed =
      parse_command_line(args, [](const std::string&) { return std::nullopt; }, {});
  return plan_run(parsed.options, probe, "");
}

// A card on which ring can run full-size models and not the tiny ones.
nlohmann::json card() {
  return {{"usable", true},
          {"device", "cuda:0 Some GPU"},
          {"ring_obstacles", {{"synthetic", ""}, {"tiny", "hidden_size found 128"}}}};
}

bool any_holds(const Names& texts, const std::string& part) {
  return std::any_of(texts.begin(), texts.end(),
                     [&](const std::string& text) { return text.find(part) != std::string::npos; });
}

TEST_CASE("megakernel is ring where it can run, else plain, model by model") {
  const RunPlan plan = plan_of({"--model", "synthetic,tiny"}, card());
  REQUIRE(plan.jobs.size() == 2);
  CHECK(plan.jobs[0].candidates == Names{"ring"});
  CHECK(plan.jobs[1].candidates == Names{"plain"});
  for (const CaseJob& job : plan.jobs) {
    CHECK(job.baselines == Names{"eager"});
    CHECK(job.asked_names == Names{"eager", "megakernel"});
    CHECK(job.time_baselines);
    CHECK_FALSE(job.profile);
  }
  CHECK(plan.warnings.empty());
  REQUIRE(plan.notes.size() == 1);
  CHECK(any_holds(plan.notes, "tiny: megakernel is plain: hidden_size found 128"));
}

TEST_CASE("engines by name never change, and one that is named twice runs once") {
  const RunPlan ring = plan_of({"--engine", "ring", "--model", "tiny"}, card());
  CHECK(ring.jobs[0].candidates == Names{"ring"});
  CHECK(ring.notes.empty());
  const RunPlan both =
      plan_of({"--engine", "megakernel,ring,plain", "--model", "synthetic"}, card());
  CHECK(both.jobs[0].candidates == Names{"ring", "plain"});
  CHECK(both.jobs[0].asked_names == Names{"eager", "megakernel", "plain"});
  CHECK(any_holds(both.warnings, "ring is ring for synthetic and runs once"));
  const RunPlan other = plan_of({"--engine", "megakernel,ring,plain", "--model", "tiny"}, card());
  CHECK(other.jobs[0].candidates == Names{"plain", "ring"});
}

TEST_CASE("none in place of a baseline: eager judges and is not timed") {
  const RunPlan plan =
      plan_of({"--compare", "none", "-d", "0,32", "-p", "16", "--profile"}, card());
  REQUIRE(plan.jobs.size() == 3);
  for (const CaseJob& job : plan.jobs) {
    CHECK(job.baselines == Names{"eager"});
    CHECK_FALSE(job.time_baselines);
    CHECK(job.profile);
  }
  CHECK(plan.jobs[0].n_prompt == 16);
  CHECK((plan.jobs[2].n_prompt == 0 && plan.jobs[2].depth == 32));
}

TEST_CASE("a case may use every position of its model, and one more is refused with the numbers") {
  // tiny has max_position_embeddings 4096.
  for (const Names& args : {Names{"-d", "3968", "-n", "128"}, Names{"-p", "4088"}}) {
    Names all = {"--model", "tiny"};
    all.insert(all.end(), args.begin(), args.end());
    CHECK_NOTHROW(plan_of(all, card()));
    all[3] = std::to_string(std::stoi(all[3]) + 1);
    CHECK_THROWS_WITH(plan_of(all, card()), ContainsText("needs 4097 positions") &&
                                                ContainsText("max_position_embeddings 4096"));
  }
}

TEST_CASE("blocks are added for an interval alone, and `parity` times nobody") {
  const CaseJob plain = plan_of({"--model", "tiny"}, card()).jobs[0];
  CHECK((plain.blocks == 10 && plain.max_blocks == 10));
  const CaseJob narrow = plan_of({"--model", "tiny", "--target-rel-ci", "0.01"}, card()).jobs[0];
  CHECK((narrow.blocks == 10 && narrow.max_blocks == 30));
  const RunPlan parity = plan_of({"parity", "--model", "tiny"}, card());
  CHECK(parity.jobs[0].whole_parity);
  CHECK_FALSE(parity.jobs[0].time_baselines);
  CHECK(parity.jobs[0].baselines == Names{"eager"});
}

TEST_CASE("a card that others use too is warned of; an unused one is not") {
  nlohmann::json probe = card();
  probe["other_processes"] = 0;
  CHECK(plan_of({"--model", "synthetic"}, probe).warnings.empty());
  probe["other_processes"] = 1;
  CHECK(any_holds(plan_of({"--model", "synthetic"}, probe).warnings, "1 other process"));
}

TEST_CASE("MKBENCH_SPIN_SCALE counts in this process alone, from 1 to 1e9") {
  const Names in_process = {"--model", "tiny", "--in-process", "--device", "cpu"};
  for (const char* text : {"1", "2.5", "1e9"}) {
    setenv("MKBENCH_SPIN_SCALE", text, 1);
    CHECK(plan_of(in_process, {}).jobs[0].spin_scale == std::stod(text));
    CHECK(plan_of({"--model", "tiny"}, card()).jobs[0].spin_scale == 1);
  }
  for (const char* text : {"0.5", "2e9", "nan", "2x", ""}) {
    setenv("MKBENCH_SPIN_SCALE", text, 1);
    CHECK_THROWS_WITH(plan_of(in_process, {}), ContainsText("MKBENCH_SPIN_SCALE"));
  }
  unsetenv("MKBENCH_SPIN_SCALE");
}

TEST_CASE("without a GPU the host twin runs, and megakernel by name is no ring") {
  const nlohmann::json probe = {{"usable", false}, {"reason", "no driver"}};
  const RunPlan plan = plan_of({}, probe);
  CHECK_FALSE(plan.cuda);
  CHECK(any_holds({plan.banner}, "no driver"));
  REQUIRE(plan.jobs.size() == 2);
  CHECK(plan.jobs[0].model == "tiny");
  CHECK(plan.jobs[0].candidates == Names{"host-twin"});
  CHECK(plan_of({"--engine", "megakernel"}, probe).jobs[0].candidates == Names{"plain"});
  CHECK_THROWS_AS(plan_of({"--device", "cuda"}, probe), Error);
}

}  // namespace
}  // namespace mkbench
