// The rows of engines and models: every engine row has its maker, every name its own row.
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "harness/engines/plugin_file.h"
#include "harness/engines/registry.h"
#include "harness/host/makers.h"
#include "references/model_row.h"
#include "references/synthetic.h"
#include "tests/support/catch2.h"

namespace mkbench {
namespace {

TEST_CASE("every engine of the registry is made by one maker in its row's program, or by a file") {
  // Makers without a row: the engine of the fault corpus, and the maker of all plugins.
  std::map<std::string, HostKind> made,
      listed = {{kPlainWithFaults, HostKind::kCuda}, {kPluginMaker, HostKind::kCuda}};
  for (const auto& [kind, makers] :
       {std::pair(HostKind::kCuda, cuda_makers()), std::pair(HostKind::kTorch, torch_makers())}) {
    for (const EngineMaker* maker : makers) {
      INFO(maker->name);
      CHECK(made.emplace(maker->name, kind).second);
      CHECK(maker->make != nullptr);
      CHECK(maker->bytes != nullptr);
    }
  }
  for (const EngineRow& row : engine_rows()) {
    INFO(row.name);
    CHECK(row.file.empty() == (row.host != HostKind::kPython));
    if (row.file.empty()) {
      CHECK(listed.emplace(row.name, row.host).second);
      CHECK(in_host({.name = std::string(row.name)}).name == row.name);
    } else {
      CHECK(std::filesystem::is_regular_file(in_host({.name = std::string(row.name)}).name));
    }
    CHECK(find_engine(row.name) == &row);
    CHECK((row.cuda || row.cpu));
    CHECK(row.roles != 0);
    CHECK_FALSE(row.help.empty());
  }
  CHECK(made == listed);
}

TEST_CASE("two engines judge, and their other runs belong to them") {
  CHECK(engine_names(kJudge) == std::vector<std::string>{kJudgeName, kHfName});
  // The ceiling has a role of its own: it can neither be asked for nor compared.
  CHECK(engine_names(kCeiling) == std::vector<std::string>{kCeilingName});
  CHECK(find_engine(kCeilingName)->roles == kCeiling);
  CHECK_FALSE(find_engine(kCeilingName)->cpu);
  using enum EngineRequest::Precision;
  for (const std::string judge : {kJudgeName, kHfName}) {
    CHECK(run_of(truth_run(judge)).engine == judge);
    CHECK(run_of(truth_run(judge)).precision == kFp32);
    CHECK(run_of(truth_run(judge)).of_judge());
    CHECK(run_of(head_fp32_run(judge)).engine == judge);
    CHECK(run_of(head_fp32_run(judge)).precision == kHeadFp32);
    CHECK_FALSE(run_of(judge).of_judge());
    CHECK(host_kind(truth_run(judge)) == host_kind(judge));
    CHECK(in_host({.name = head_fp32_run(judge)}).precision == kHeadFp32);
    CHECK(in_host({.name = judge, .precision = kFp32}).precision == kOwn);
  }
  CHECK(in_host({.name = truth_run(kHfName)}).name == in_host({.name = kHfName}).name);
  CHECK(in_host({.name = truth_run(kJudgeName)}).name == truth_run(kJudgeName));
  for (const std::string other : {"ring", "ring-fp32", "./mine-fp32.py"}) {
    CHECK(run_of(other).engine == other);
    CHECK_FALSE(run_of(other).of_judge());
  }
  CHECK(rounds_logits(kJudgeName));
  CHECK_FALSE(rounds_logits("ring"));
  CHECK_FALSE(rounds_logits("./somebody.so"));
  CHECK(in_host({.name = "./somebody.py"}).name == "./somebody.py");
  for (const bool cuda : {true, false}) {
    const EngineRow* row = find_engine(resolve_engine(default_engine(cuda), false));
    REQUIRE(row != nullptr);
    CHECK(row->runs_on(cuda));
  }
}

TEST_CASE("models are found by name, and users' own models by folder and shape") {
  std::set<std::string> names;
  for (const ModelRow& row : model_rows()) {
    INFO(row.name);
    CHECK(names.insert(std::string(row.name)).second);
    CHECK(find_model(row.name, row.shape) == &row);
    if (row.source != ModelSource::kAnalytic) continue;
    CHECK_NOTHROW(synthetic_min_depth(row.lagset.empty() ? "none" : row.lagset));
    REQUIRE(find_model(row.parity_set) != nullptr);  // the lag set that judges it has a row
    CHECK(find_model(row.parity_set)->parity_set == row.parity_set);
  }
  CHECK(find_model("synthetic:odd") == nullptr);
  CHECK(find_model("Qwen3-0.6B") == nullptr);  // a folder's name says nothing without its shape
  CHECK(find_model("/models/Qwen3-0.6B/", kQwen3_0_6B)->parity_set == "qwen3-0.6b");
  CHECK(find_model("/models/Qwen3-0.6B", kTiny) == nullptr);
  CHECK(has_committed_truth(find_model("tiny")));
  CHECK_FALSE(has_committed_truth(find_model("Qwen/Qwen3-0.6B", kQwen3_0_6B)));
  CHECK_FALSE(has_committed_truth(nullptr));
  CHECK(is_byte_level(kTiny));
  CHECK_FALSE(is_byte_level(kQwen3_0_6B));
}

}  // namespace
}  // namespace mkbench
