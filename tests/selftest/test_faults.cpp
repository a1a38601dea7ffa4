// The fault corpus on the host: every lane fails exactly the checks that the table says, every
// control passes, and the table itself holds together.
#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "harness/host/factory.h"
#include "harness/report/checks.h"
#include "harness/selftest/fault_table.h"
#include "harness/selftest/gate_faults.h"
#include "harness/selftest/lanes.h"
#include "references/base/parallel.h"
#include "references/planted_fault.h"
#include "references/snapshot.h"
#include "references/weight_edit.h"
#include "tests/support/catch2.h"
#include "tests/support/thrown.h"

namespace mkbench {
extern const EngineMaker host_twin_maker;
}
using namespace mkbench;

namespace {

std::vector<std::string> split(std::string_view list) {
  std::vector<std::string> words;
  while (!list.empty()) {
    const size_t comma = std::min(list.find(','), list.size());
    words.emplace_back(list.substr(0, comma));
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  return words;
}

const FaultRow* row_named(std::string_view id) {
  const auto found = std::find_if(fault_rows().begin(), fault_rows().end(),
                                  [&](const FaultRow& row) { return row.id == id; });
  return found == fault_rows().end() ? nullptr : &*found;
}

std::string text_of(const std::string& file) {
  std::ifstream in(file);
  return {std::istreambuf_iterator<char>(in), {}};
}

bool is_plant(const FaultLane& lane) {
  if (lane.lane == Lane::kGate) {
    return std::any_of(gate_faults().begin(), gate_faults().end(),
                       [&](const GateFault& fault) { return fault.name == lane.plant; });
  }
  return lane.plant == "none" ||
         std::any_of(planted_faults().begin(), planted_faults().end(),
                     [&](const PlantedFaultInfo& info) { return info.name == lane.plant; });
}

// Each lane shows what the table says.
void check_lanes(const std::vector<FaultLane>& lanes) {
  const EngineFactory factory({&host_twin_maker});
  LaneRunner runner([&](const EngineRequest& request, const ModelWeights& weights) {
    return factory.make(request, weights);
  });
  std::vector<LaneOutcome> outcomes(lanes.size());
  parallel_chunks(static_cast<int64_t>(lanes.size()), 1, thread_count(0),
                  [&](int64_t begin, int64_t end) {
                    for (int64_t i = begin; i < end; ++i) {
                      const auto at = static_cast<size_t>(i);
                      outcomes[at] = runner.run(lanes[at]);
                    }
                  });
  for (size_t i = 0; i < lanes.size(); ++i) {
    INFO("row " << lanes[i].row << ", lane " << lane_info(lanes[i].lane).name << ", "
                << lanes[i].plant << ", " << lanes[i].model << ": " << outcomes[i].note);
    CHECK(surprise(lanes[i], outcomes[i]) == "");
  }
}

// The lanes that need no GPU: the first of each kind with its set of failing checks, or the others.
std::vector<FaultLane> host_lanes(bool first_of_their_kind) {
  std::vector<FaultLane> lanes;
  std::set<std::pair<Lane, std::string_view>> seen;
  for (const FaultLane& lane : fault_lanes()) {
    if (lane_info(lane.lane).cuda) continue;
    const bool first = seen.insert({lane.lane, lane.fails}).second;
    if (first == first_of_their_kind) lanes.push_back(lane);
  }
  return lanes;
}

}  // namespace

TEST_CASE("a lane of each kind and set of failing checks shows what it is to show", "[faults]") {
  const std::vector<FaultLane> lanes = host_lanes(true);
  REQUIRE(lanes.size() > 40);
  check_lanes(lanes);
}

TEST_CASE("every other lane that needs no GPU shows what it is to show", "[.][slow]") {
  const std::vector<FaultLane> lanes = host_lanes(false);
  REQUIRE(lanes.size() > 50);
  check_lanes(lanes);
}

TEST_CASE("on four layers of the talker the host twin shows the faults that depend on a shape",
          "[.][slow]") {
  std::vector<FaultLane> lanes;
  for (const FaultLane& lane : shape_lanes("synthetic:qwen3-tts-talker", false, false)) {
    // Those that the fewest checks see, and a control.
    for (const std::string_view row : {"6", "10b", "15a", "26", "c1"})
      if (lane.row == row) lanes.push_back(lane);
  }
  REQUIRE(lanes.size() == 5);
  check_lanes(lanes);
}

TEST_CASE("a lane that shows anything else is a surprise", "[faults]") {
  const FaultLane lane{"1", Lane::kTwin, "rope_theta", "tiny", "r_rms,decided", 10};
  CHECK(surprise(lane, {{"r_rms", "decided"}, 10.0, ""}) == "");
  CHECK(surprise(lane, {{"r_rms", "decided"}, 14.9, ""}) == "");
  CHECK(surprise(lane, {{"r_rms", "decided"}, 15.1, ""}) != "");
  CHECK(surprise(lane, {{"r_rms", "decided"}, 6.6, ""}) != "");
  CHECK(surprise(lane, {{"r_rms", "decided"}, std::nullopt, ""}) != "");
  CHECK(surprise(lane, {{"r_rms"}, 10.0, ""}) != "");
  CHECK(surprise(lane, {{"r_rms", "decided", "strict"}, 10.0, ""}) != "");
  CHECK(surprise(lane, {{}, 10.0, ""}) != "");
  const FaultLane control{"c1", Lane::kTwin, "none", "tiny", "", 0};
  CHECK(surprise(control, {{}, 0.2, ""}) == "");
  CHECK(surprise(control, {{"r_step"}, 0.2, ""}) != "");

  const FaultLane at_least{"1", Lane::kRing, "rope_theta", "synthetic:cut", "r_rms,sweep", 0, true};
  CHECK(surprise(at_least, {{"r_rms", "sweep"}, 10.0, ""}) == "");
  CHECK(surprise(at_least, {{"r_rms", "decided", "sweep"}, 10.0, ""}) == "");
  CHECK(surprise(at_least, {{"r_rms"}, 10.0, ""}) ==
        "failing: found r_rms, wanted at least r_rms,sweep");
  CHECK(surprise(at_least, {{"error"}, 10.0, ""}) != "");
  const FaultLane few{"1", Lane::kTwin, "rope_theta", "tiny", "r_rms,near_tie,strict", 0, true};
  CHECK(surprise(few, {{"r_rms"}, 10.0, ""}) == "");
  CHECK(surprise(few, {{"near_tie", "strict"}, 10.0, ""}) != "");
  CHECK(surprise(at_least, {{}, 10.0, ""}) != "");
  const FaultLane sound{"c1", Lane::kRing, "none", "synthetic:cut", "", 0, true};
  CHECK(surprise(sound, {{}, 0.2, ""}) == "");
  CHECK(surprise(sound, {{"ratchet"}, 0.2, ""}) != "");
}

TEST_CASE("the faults that depend on a shape are planted in the engines that run it", "[faults]") {
  const auto lanes_of = [](bool cuda, bool ring) {
    std::vector<Lane> found;
    for (const FaultLane& lane : shape_lanes("synthetic:qwen3-1.7b", cuda, ring)) {
      CHECK(lane.model == "synthetic:qwen3-1.7b");
      if (lane.row == "26") found.push_back(lane.lane);
    }
    return found;
  };
  CHECK(lanes_of(true, true) == std::vector{Lane::kRing, Lane::kPlain});
  CHECK(lanes_of(true, false) == std::vector{Lane::kPlain});
  CHECK(lanes_of(false, false) == std::vector{Lane::kTwin});
}

TEST_CASE("a fault is planted where the model has the place for it", "[faults]") {
  ModelConfig all;
  all.shape.heads = 4;
  all.shape.kv_heads = 2;
  all.shape.qkv_bias = true;
  all.rope.scaling = RopeScaling::kLlama3;
  ModelConfig no_norm = all, no_bias = all, no_scaling = all, one_kv_head = all, no_groups = all;
  ModelConfig gelu = all;
  gelu.shape.activation = Activation::kGeluTanh;
  no_norm.shape.qk_norm = false;
  no_bias.shape.qkv_bias = false;
  no_scaling.rope.scaling = RopeScaling::kNone;
  one_kv_head.shape.kv_heads = 1;
  no_groups.shape.heads = 2;
  const auto refused_by = [](const ModelConfig& config) {
    std::set<std::string_view> plants, missing;
    for (const PlantedFaultInfo& info : planted_faults()) {
      if (const auto text = missing_for(info.fault, config); !text.empty())
        plants.insert(info.name), missing.insert(text);
    }
    return std::pair(plants, missing);
  };
  using Names = std::set<std::string_view>;
  CHECK(refused_by(all).first.empty());
  CHECK(refused_by(no_norm) ==
        std::pair(Names{"skip_q_norm", "skip_k_norm", "norm_after_rope", "value_normed"},
                  Names{"QK-norm"}));
  CHECK(refused_by(no_bias) == std::pair(Names{"bias_dropped"}, Names{"biases of q, k and v"}));
  CHECK(refused_by(gelu) == std::pair(Names{"gelu"}, Names{"SiLU"}));
  CHECK(refused_by(no_scaling) == std::pair(Names{"rope_unscaled"}, Names{"scaled RoPE"}));
  CHECK(refused_by(one_kv_head).first == Names{"gqa_map", "next_value_head"});
  CHECK(refused_by(no_groups).first == Names{"gqa_map"});

  // No engine is made with such a fault, wherever it would be planted.
  const EngineFactory factory({&host_twin_maker});
  for (const auto& [model, fault, part] :
       {std::tuple("tiny-llama", PlantedFault::kSkipQNorm, "QK-norm"),
        {"tiny", PlantedFault::kBiasDropped, "biases of q, k and v"},
        {"tiny", PlantedFault::kRopeUnscaled, "scaled RoPE"}}) {
    const ModelWeights weights = load_model(resolve_model(model));
    const EngineRequest request{.name = "host-twin", .max_context = 9, .fault = fault};
    CHECK(testing::error_line([&] { factory.make(request, weights); }) ==
          fmt::format("--plant-fault {}: wanted a model with {}", planted_fault_name(fault), part));
  }
}

TEST_CASE("a trained model of another family gets tiny's faults and its own", "[faults]") {
  const ModelRow& row = *find_model("tiny-llama");
  std::vector<std::string> wanted, found;
  for (const FaultLane& lane : fault_lanes()) {
    if (lane.lane != Lane::kTwin) continue;
    const bool of_norm = !missing_for(fault_of(lane), {.shape = row.shape}).empty();
    const bool shared = lane.model == "tiny" && !of_norm && lane.plant != "none";
    if (shared || lane.model == row.name)
      wanted.push_back(fmt::format("{} {} {}", lane.row, lane.plant, shared));
  }
  for (const FaultLane& lane : committed_lanes(row)) {
    CHECK(lane.lane == Lane::kTwin);
    CHECK(lane.model == row.name);
    found.push_back(fmt::format("{} {} {}", lane.row, lane.plant, lane.at_least));
  }
  std::sort(wanted.begin(), wanted.end());
  std::sort(found.begin(), found.end());
  CHECK(found == wanted);
}

TEST_CASE("every fault that a trained model of another family has a place for is seen in it",
          "[.][slow]") {
  for (const char* model : {"tiny-llama", "tiny-qwen2"}) {
    const std::vector<FaultLane> lanes = committed_lanes(*find_model(model));
    REQUIRE(lanes.size() > 40);
    check_lanes(lanes);
  }
}

TEST_CASE("rows and lanes of the fault table belong together", "[faults]") {
  std::set<std::string_view> ids;
  for (const FaultRow& row : fault_rows()) {
    INFO("row " << row.id);
    CHECK(ids.insert(row.id).second);
    const bool has_lane = std::any_of(fault_lanes().begin(), fault_lanes().end(),
                                      [&](const FaultLane& lane) { return lane.row == row.id; });
    CHECK((has_lane || !row.elsewhere.empty()));
    CHECK_FALSE((row.control && !has_lane));
  }
  for (int number = 1; number <= 58; ++number) {
    INFO("number " << number);
    const std::string text = std::to_string(number);
    CHECK((ids.count(text) == 1 || (ids.count(text + "a") == 1 && ids.count(text + "b") == 1)));
  }
  for (const FaultLane& lane : shape_faults()) {
    for (const PlantedFaultInfo& info : planted_faults()) {
      INFO(lane.plant);
      CHECK_FALSE((info.name == lane.plant && info.site == FaultSite::kKernel));
    }
  }
  std::vector<FaultLane> all = fault_lanes();
  all.insert(all.end(), shape_faults().begin(), shape_faults().end());
  for (const FaultLane& lane : all) {
    INFO("row " << lane.row << ", " << lane.plant);
    const FaultRow* row = row_named(lane.row);
    REQUIRE(row != nullptr);
    CHECK(is_plant(lane));
    CHECK(row->control == lane.fails.empty());
    const bool probes = lane.lane == Lane::kTwinProbes || lane.lane == Lane::kPlainProbes;
    for (const std::string& name : split(lane.fails)) {
      INFO(name);
      CHECK((probes || enum_from_text(Tag<Check>(), name).has_value()));
    }
  }
}

TEST_CASE("what the fault table names elsewhere is there", "[faults]") {
  const std::string root = data_dir().parent_path().parent_path().string();
  for (const FaultRow& row : fault_rows()) {
    if (row.elsewhere.empty() || row.elsewhere.starts_with("rule: ")) continue;
    INFO("row " << row.id << ": " << row.elsewhere);
    const size_t colon = row.elsewhere.find(": ");
    REQUIRE(colon != std::string_view::npos);
    const std::string file = text_of(root + "/" + std::string(row.elsewhere.substr(0, colon)));
    CHECK(file.find(row.elsewhere.substr(colon + 2)) != std::string::npos);
  }
}

TEST_CASE("planted faults are one list in the enum's order, each name once", "[faults]") {
  std::set<std::string_view> names;
  int number = 0;
  for (const PlantedFaultInfo& info : planted_faults()) {
    CHECK(static_cast<int>(info.fault) == ++number);
    CHECK(names.insert(info.name).second);
    CHECK(planted_fault_name(info.fault) == info.name);
  }
  CHECK(planted_fault_name(PlantedFault::kNone) == "none");
}

TEST_CASE("a fault of the weights changes a copy, and only where it says", "[faults]") {
  const ModelWeights tiny = load_model(resolve_model("tiny-untied"));
  const ModelWeights biased = load_model(resolve_model("tiny-qwen2"));
  for (const PlantedFaultInfo& info : planted_faults()) {
    const ModelWeights& sound = missing_for(info.fault, tiny.config).empty() ? tiny : biased;
    const std::string hash = hash_weights(sound);
    const ModelWeights planted = with_planted_fault(sound, info.fault);
    INFO(info.name);
    CHECK(hash_weights(sound) == hash);
    const bool of_config = planted.config.rms_norm_eps != sound.config.rms_norm_eps;
    const bool changed = of_config || hash_weights(planted) != hash;
    CHECK(changed == (info.site == FaultSite::kWeights));
  }
}
