// Options and a probe of the machine become jobs: which engines each model gets.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "harness/cli/plan.h"
#include "references/base/error.h"
#include "references/synthetic.h"
#include "tests/support/catch2.h"
#include "tests/support/micro_model.h"
#include "tests/support/thrown.h"

namespace mkbench {
namespace {

using Names = std::vector<std::string>;

RunPlan plan_of(const std::vector<std::string>& args, const MachineProbe& probe) {
  const ParsedCommandLine parsed = parse_command_line(args);
  return plan_run(parsed.as<PlanSettings>(), probe);
}

// A card on which ring can run full-size models and not the tiny ones.
MachineProbe card() {
  MachineProbe probe;
  probe.usable = true;
  probe.device = "cuda:0 Some GPU";
  probe.ring_obstacles = {{"synthetic", ""}, {"tiny", "hidden_size found 128"}};
  return probe;
}

// The resolved names of the engines in a role.
Names names_in(const CaseJob& job, bool CaseEngine::*role) {
  Names names;
  for (const CaseEngine& engine : job.engines) {
    if (engine.*role) names.push_back(engine.name);
  }
  return names;
}
Names candidates(const CaseJob& job) { return names_in(job, &CaseEngine::candidate); }

Names asked_names(const CaseJob& job) {
  Names names;
  for (const CaseEngine& engine : job.engines) names.push_back(engine.asked);
  return names;
}

bool any_holds(const Names& texts, const std::string& part) {
  return std::any_of(texts.begin(), texts.end(),
                     [&](const std::string& text) { return text.find(part) != std::string::npos; });
}

TEST_CASE("megakernel is ring where it can run, else plain, model by model") {
  const RunPlan plan = plan_of({"--model", "synthetic,tiny"}, card());
  REQUIRE(plan.jobs.size() == 2);
  CHECK(candidates(plan.jobs[0]) == Names{"ring"});
  CHECK(candidates(plan.jobs[1]) == Names{"plain"});
  for (const CaseJob& job : plan.jobs) {
    CHECK(names_in(job, &CaseEngine::judges) == Names{"eager"});
    CHECK(names_in(job, &CaseEngine::yardstick) == Names{"eager"});
    CHECK(asked_names(job) == Names{"eager", "megakernel"});
    CHECK_FALSE(job.ablations);
  }
  CHECK(plan.warnings.empty());
  REQUIRE(plan.notes.size() == 1);
  CHECK(any_holds(plan.notes, "tiny: megakernel is plain: hidden_size found 128"));
}

TEST_CASE("engines by name never change, and one that is named twice runs once") {
  const RunPlan ring = plan_of({"--engine", "ring", "--model", "tiny"}, card());
  CHECK(candidates(ring.jobs[0]) == Names{"ring"});
  CHECK(ring.notes.empty());
  const RunPlan both =
      plan_of({"--engine", "megakernel,ring,plain", "--model", "synthetic"}, card());
  CHECK(candidates(both.jobs[0]) == Names{"ring", "plain"});
  CHECK(asked_names(both.jobs[0]) == Names{"eager", "megakernel", "plain"});
  CHECK(any_holds(both.warnings,
                  "ring is ring (for synthetic), which was named before: it runs once"));
  const RunPlan other = plan_of({"--engine", "megakernel,ring,plain", "--model", "tiny"}, card());
  CHECK(candidates(other.jobs[0]) == Names{"plain", "ring"});
}

TEST_CASE("under --compare none eager judges and is not timed") {
  const RunPlan plan =
      plan_of({"--compare", "none", "-d", "0,32", "-p", "16", "--ablations"}, card());
  REQUIRE(plan.jobs.size() == 3);
  for (const CaseJob& job : plan.jobs) {
    CHECK(names_in(job, &CaseEngine::judges) == Names{"eager"});
    CHECK(names_in(job, &CaseEngine::yardstick).empty());
    CHECK(job.ablations);
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

TEST_CASE("blocks are added only for --target-rel-ci, and `parity` has no yardstick") {
  const CaseJob plain = plan_of({"--model", "tiny"}, card()).jobs[0];
  CHECK((plain.blocks == 10 && plain.max_blocks == 10));
  const CaseJob narrow = plan_of({"--model", "tiny", "--target-rel-ci", "0.01"}, card()).jobs[0];
  CHECK((narrow.blocks == 10 && narrow.max_blocks == 30));
  CHECK((plain.processes == 5 && plain.blocks_by_time && plain.warmup_by_time));
  const auto job_of = [](Names args, const MachineProbe& machine) {
    args.insert(args.end(), {"--model", "tiny"});
    return plan_of(args, machine).jobs[0];
  };
  // A number of blocks is exact, with a short warm-up; --warmup keeps its meaning.
  const CaseJob counted = job_of({"--blocks", "3"}, card());
  CHECK((counted.blocks == 3 && counted.processes == 5 && counted.warmup == 1));
  CHECK_FALSE((counted.blocks_by_time || counted.warmup_by_time));
  const CaseJob warmed = job_of({"--warmup", "4"}, card());
  CHECK((warmed.blocks_by_time && !warmed.warmup_by_time && warmed.warmup == 4));
  for (const CaseJob& short_one :
       {job_of({"--device", "cpu"}, card()), job_of({"--in-process"}, card())}) {
    CHECK((short_one.processes == 1 && short_one.blocks == 10 && short_one.warmup == 1));
    CHECK_FALSE((short_one.blocks_by_time || short_one.warmup_by_time));
  }
  const CaseJob many = job_of({"--device", "cpu", "--processes", "12"}, card());
  CHECK((many.processes == 12 && many.blocks == 12));
  const RunPlan parity = plan_of({"parity", "--model", "tiny"}, card());
  CHECK(parity.jobs[0].whole_parity);
  CHECK(names_in(parity.jobs[0], &CaseEngine::judges) == Names{"eager"});
  CHECK(names_in(parity.jobs[0], &CaseEngine::yardstick).empty());
}

TEST_CASE("candidates are observed in runs of several processes") {
  const auto observed = [](std::vector<std::string> args) {
    args.insert(args.end(), {"--model", "synthetic"});
    return plan_of(args, card()).jobs.at(0).observed;
  };
  CHECK(observed({}));
  CHECK(observed({"--processes", "2"}));
  CHECK_FALSE(observed({"--processes", "1"}));
  CHECK_FALSE(observed({"-p", "8"}));
}

TEST_CASE("a machine that is not fit for times causes one warning, with all reasons") {
  MachineProbe probe = card();
  CHECK(plan_of({"--model", "synthetic"}, probe).warnings.empty());
  probe.host_unfit = {"load 9.0 on 16 processors (most 8)"};
  probe.card_unfit = {"1 other process(es) on the card"};
  const RunPlan plan = plan_of({"--model", "synthetic"}, probe);
  REQUIRE(plan.warnings.size() == 1);
  CHECK_THAT(plan.warnings[0], ContainsText("not fit for a verdict on times: load 9.0 on 16") &&
                                   ContainsText("; 1 other process(es) on the card"));
  // The card does not concern a run on the CPU, nor anything a run without times.
  const RunPlan on_cpu = plan_of({"--model", "tiny", "--device", "cpu"}, probe);
  REQUIRE(on_cpu.warnings.size() == 1);
  CHECK_FALSE(any_holds(on_cpu.warnings, "other process"));
  CHECK(plan_of({"parity", "--model", "tiny"}, probe).warnings.empty());
  const std::vector<std::string> step = {"parity", "--model", "tiny", "--only", "corpus-1:3"};
  CHECK(plan_of(step, probe).warnings.empty());
  const RunPlan prompt = plan_of({"parity", "--model", "tiny", "--only", "corpus-1"}, probe);
  CHECK(any_holds(prompt.warnings, "--only corpus-1: ids alone are judged"));
}

TEST_CASE("a run whose ring has a pace that nobody measured says so, unless it measures it first") {
  MachineProbe probe = card();
  probe.ring_paces = {{"synthetic", "an unknown card: not measured"}, {"tiny", ""}};
  const Names run = {"--model", "synthetic"};
  const auto with = [&](const Names& more) {
    Names args = run;
    args.insert(args.end(), more.begin(), more.end());
    return plan_of(args, probe);
  };
  const std::string told = "synthetic: ring's pace on this card is predicted, not measured";
  REQUIRE(with({}).warnings.size() == 1);
  CHECK(any_holds(with({}).warnings, told));
  CHECK(any_holds(with({"--engine", "plain,ring"}).warnings, told));
  CHECK(with({"--engine", "plain"}).warnings.empty());
  CHECK(plan_of({"parity", "--model", "synthetic"}, probe).warnings.empty());
  CHECK(with({"--tune"}).warnings.empty());
  CHECK(with({"--tune"}).jobs.size() == 1);
  // The machine's state is the first warning, ring's pace the second: the first screen shows two.
  probe.host_unfit = {"load"};
  REQUIRE(with({}).warnings.size() == 2);
  CHECK(any_holds({with({}).warnings[1]}, told));
  probe.host_unfit.clear();
  probe.ring_paces["synthetic"] = "a sweep";
  CHECK(with({}).warnings.empty());
  CHECK_NOTHROW(with({"--tune"}));  // a card with a row may be measured again
}

TEST_CASE("--tune is refused where it has nothing to measure") {
  const auto refused = [](const Names& args, const MachineProbe& probe, const char* why) {
    try {
      plan_of(args, probe);
      FAIL("nothing was thrown");
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::kBadInput);
      CHECK_THAT(error.what(), ContainsText(why));
    }
  };
  refused({"--tune", "--model", "tiny"}, card(), "found no case with ring on a GPU");
  refused({"--tune", "--model", "synthetic", "--engine", "plain"}, card(), "add --engine ring");
  refused({"--tune", "--model", "tiny", "--device", "cpu"}, card(),
          "mkbench doctor says what is missing");
  refused({"--tune"}, {}, "mkbench doctor says what is missing");
  CHECK_NOTHROW(plan_of({"--tune", "--model", "tiny,synthetic"}, card()));
}

TEST_CASE("MKBENCH_SPIN_SCALE, from 1 to 1e9, counts only under --in-process") {
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

TEST_CASE("without a GPU the host twin runs, and megakernel resolves to plain") {
  MachineProbe probe;
  probe.reason = "no driver";
  const RunPlan plan = plan_of({}, probe);
  CHECK_FALSE(plan.cuda);
  CHECK(any_holds({plan.banner}, "no driver"));
  REQUIRE(plan.jobs.size() == 2);
  CHECK(plan.jobs[0].model.name == "tiny");
  CHECK(candidates(plan.jobs[0]) == Names{"host-twin"});
  CHECK(candidates(plan_of({"--engine", "megakernel"}, probe).jobs[0]) == Names{"plain"});
  CHECK_THROWS_AS(plan_of({"--device", "cuda"}, probe), Error);
}

TEST_CASE("an engine's file that is not there is refused before anything is loaded") {
  for (const char* name : {"./nowhere.so", "./nowhere.py"}) {
    CHECK_THROWS_WITH(plan_of({"--model", "tiny", "--device", "cpu", "--engine", name}, {}),
                      ContainsText(std::string("engine ") + name + ": file: found none"));
  }
}

TEST_CASE("the ceiling takes part in decode tests on a card whose L2 cannot hold a step") {
  const auto no_ceiling = [](const std::vector<std::string>& args, int64_t l2_bytes) {
    MachineProbe probe = card();
    probe.l2_bytes = l2_bytes;
    return plan_of(args, probe).jobs.at(0).no_ceiling;
  };
  CHECK(no_ceiling({"--model", "synthetic"}, 50'000'000).empty());
  CHECK(no_ceiling({"--model", "synthetic", "--n-depth", "4096"}, 50'000'000).empty());
  CHECK(no_ceiling({"--model", "synthetic"}, 400'000'000).find("under 4 x L2") !=
        std::string::npos);
  CHECK(no_ceiling({"--model", "tiny"}, 50'000'000).find("under 4 x L2 (50.0 MB)") !=
        std::string::npos);
  CHECK(no_ceiling({"--model", "synthetic", "--n-prompt", "512", "--n-gen", "8"}, 50'000'000) ==
        "a prefill test does not read the weights once a token");
  CHECK(no_ceiling({"--device", "cpu", "--model", "tiny"}, 50'000'000) == "no GPU");
  CHECK(no_ceiling({"parity", "--model", "synthetic"}, 50'000'000) == "nothing is timed");
  // A decode test after a prefill test has one.
  MachineProbe probe = card();
  probe.l2_bytes = 50'000'000;
  const RunPlan both =
      plan_of({"--model", "synthetic", "--n-prompt", "512", "--n-gen", "8"}, probe);
  CHECK(both.jobs.back().n_prompt == 0);
  CHECK(both.jobs.back().no_ceiling.empty());
  // And its candidates are audited.
  CHECK((both.jobs.back().audited && both.jobs.back().l2_bytes == 50'000'000));
  CHECK(!both.jobs.front().audited);
  CHECK(!plan_of({"--model", "synthetic", "--in-process"}, probe).jobs.at(0).audited);
  CHECK(!plan_of({"parity", "--model", "synthetic"}, probe).jobs.at(0).audited);
  CHECK(!plan_of({"--device", "cpu", "--model", "tiny"}, {}).jobs.at(0).audited);
}

TEST_CASE("every run draws a salt, whatever its seed; an audit's follows from its seed") {
  const auto salt = [](const std::vector<std::string>& args) {
    return plan_of(args, {}).jobs.at(0).salt;
  };
  const std::vector<std::string> run = {"--device", "cpu", "--seed", "3"},
                                 audit = {"audit", "--device", "cpu", "--seed", "3"};
  CHECK((salt(run) > 0 && salt(run) < kSaltBound && salt(run) != salt(run)));
  CHECK(salt(audit) == salt(audit));
  CHECK(salt(audit) != salt({"audit", "--device", "cpu", "--seed", "4"}));
}

TEST_CASE("hf judges what transformers alone computes, and takes eager's place there") {
  const testing::TemporaryFolder place;
  testing::write_micro_model(place.path());
  const std::string folder = place.path().string();
  testing::write_file(
      place.path() / "config.json",
      R"({"model_type": "zebra", "vocab_size": 7, "hidden_size": 5, "num_hidden_layers": 3})");
  MachineProbe large_l2 = card();
  large_l2.l2_bytes = 1'000'000;
  const RunPlan plan = plan_of({"--model", folder}, large_l2);
  const CaseJob& job = plan.jobs.at(0);
  CHECK(names_in(job, &CaseEngine::judges) == Names{"hf"});
  CHECK(names_in(job, &CaseEngine::yardstick) == Names{"hf"});
  CHECK(candidates(job) == Names{"hf-static"});
  CHECK(any_holds(plan.notes, "eager does not compute this model: hf is the baseline"));
  CHECK(job.no_ceiling.empty());
  CHECK_FALSE(job.audited);
  CHECK(judge_runs(job).judge == "hf");
  CHECK(judge_runs(job).truth == "hf-fp32");
  CHECK(judge_runs(job).head_fp32 == "hf-head-fp32");
  CHECK(judge_runs(CaseJob{}).truth == "eager-fp32");

  // A model that mkbench computes too keeps its engines; only the judge is another one.
  const CaseJob own = plan_of({"--model", "tiny", "--truth", "transformers"}, card()).jobs.at(0);
  CHECK(names_in(own, &CaseEngine::judges) == Names{"hf"});
  CHECK(names_in(own, &CaseEngine::yardstick) == Names{"eager"});
  CHECK(candidates(own) == Names{"plain"});
  CHECK(own.audited);

  const auto refused = [&](std::vector<std::string> flags) {
    flags.insert(flags.end(), {"--model", folder});
    return testing::error_line([&] { plan_of(flags, card()); });
  };
  CHECK(refused({"--in-process"}).starts_with("--in-process: not with --model"));
  CHECK(refused({"--reference", folder}).starts_with("--reference: not with --model"));
  // Answers may have been captured for it; a truth that is asked for is live.
  const std::vector<std::pair<std::vector<std::string>, std::string>> kept = {
      {{"--require-reference"}, "--require-reference: not with --model tiny"},
      {{"parity", "--only", "live 1:3"}, "--only: not with --model tiny"},
      {{"parity", "--only", "live 1"}, "accepted"}};
  for (const auto& [flags, of_own] : kept) {
    CHECK(refused(flags) == "accepted");
    std::vector<std::string> asked = flags;
    asked.insert(asked.end(), {"--model", "tiny", "--truth", "transformers"});
    CHECK(testing::error_line([&] { plan_of(asked, card()); }).starts_with(of_own));
  }
  for (const std::string engine : {"ring", "plain", "host-twin"})
    CHECK(refused({"--engine", engine})
              .find("engine " + engine +
                    " does not run it: name hf-static, or an engine of your own, in Python or a "
                    "library (.so)") != std::string::npos);
  const std::string library = (place.path() / "mine.so").string();
  testing::write_file(library, "");
  CHECK(refused({"--engine", library}) == "accepted");
  CHECK(refused({"--compare", "graph"}).find("engine graph does not run it") != std::string::npos);
  CHECK(refused({"--engine", "hf", "--compare", "none"}) == "accepted");
  CHECK(refused({"--truth", "mkbench"}).find("transformers alone computes it") !=
        std::string::npos);
}

TEST_CASE("what a format costs is told against a model of the same vocabulary") {
  const testing::TemporaryFolder place, other;
  for (const auto& [folder, vocab] : {std::pair{&place, 259}, {&other, 260}}) {
    testing::write_micro_model(folder->path());
    testing::write_file(folder->path() / "config.json",
                        fmt::format(R"({{"model_type": "zebra", "vocab_size": {}, "hidden_size": 5,
                                        "num_hidden_layers": 3}})",
                                    vocab));
  }
  const std::string folder = place.path().string();
  const auto job_of = [](const std::vector<std::string>& flags) {
    return plan_of(flags, card()).jobs.at(0);
  };
  const auto refused = [&](const std::vector<std::string>& flags) {
    return testing::error_line([&] { plan_of(flags, card()); });
  };
  CHECK_FALSE(job_of({"--model", folder}).original);
  const CaseJob job = job_of({"--model", folder, "--original", "tiny", "--max-kl", "0.25"});
  REQUIRE(job.original);
  CHECK(job.original->name == "tiny");
  CHECK(job.max_kl == 0.25);
  const CaseJob own = job_of({"--model", "tiny", "--truth", "dequantised", "--engine", "hf-static",
                              "--compare", "none", "--max-kl", "0.5"});
  REQUIRE(own.original);
  CHECK(own.original->folder == own.model.folder);
  const std::string elsewhere = other.path().string();
  for (const auto& [flags, words] : std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{"--model", folder, "--max-kl", "0.1"},
            "--max-kl: found neither --original nor --truth dequantised"},
           {{"--model", "tiny", "--original", "tiny"},
            "--original tiny: mkbench computes the truth of --model tiny"},
           {{"--model", folder, "--original", "synthetic"},
            "--original synthetic: is made in memory, wanted a folder"},
           {{"--model", folder, "--original", "nowhere"}, "--original nowhere: "},
           {{"--model", folder, "--original", folder},
            "--original " + folder + ": is --model itself"},
           {{"--model", folder, "--original", elsewhere},
            "--original " + elsewhere + ": found a vocabulary of 260, wanted 259"}}) {
    CHECK(refused(flags).starts_with(words));
  }
}

}  // namespace
}  // namespace mkbench
