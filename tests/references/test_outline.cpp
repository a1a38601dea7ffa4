// What is read of a model that only transformers computes, and which truth a model gets.
#include <fstream>
#include <nlohmann/json.hpp>

#include "references/outline.h"
#include "references/snapshot.h"
#include "tests/support/catch2.h"
#include "tests/support/micro_model.h"
#include "tests/support/thrown.h"

namespace mkbench::testing {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

const json kForeign = {{"model_type", "zebra"},
                       {"vocab_size", 7},
                       {"hidden_size", 5},
                       {"num_hidden_layers", 3},
                       {"max_position_embeddings", 11}};

// A folder with the micro model's tensors and another config.
fs::path folder_with(const TemporaryFolder& place, const json& config) {
  write_micro_model(place.path());
  write_file(place.path() / "config.json", config.dump());
  return place.path();
}

ModelConfig outline(const json& config) {
  const TemporaryFolder place;
  return outline_config(folder_with(place, config));
}

std::string refusal(const json& config) {
  return error_line([&] { outline(config); });
}

json without(json config, const char* key) {
  config.erase(key);
  return config;
}

}  // namespace

TEST_CASE("an outline has a model's size under the names that its class gives") {
  json other = {{"model_type", "zebra"},
                {"vocab_size", 7},
                {"n_embd", 5},
                {"n_layer", 3},
                {"n_positions", 11}};
  const json nested = {{"model_type", "zebra"}, {"vocab_size", 1}, {"text_config", kForeign}};
  json older = without(without(kForeign, "hidden_size"), "num_hidden_layers");
  older["d_model"] = 5;
  older["num_layers"] = 3;
  for (const json& config : {kForeign, other, nested, older}) {
    const ModelConfig found = outline(config);
    INFO(config.dump());
    CHECK(found.shape.vocab == 7);
    CHECK(found.shape.hidden == 5);
    CHECK(found.shape.layers == 3);
    CHECK(found.max_positions == 11);
    CHECK_FALSE(found.routes);
    CHECK(found.is_outline());
    CHECK_FALSE(found.shape.is_whole());
    CHECK(found.weight_bytes() == found.outline_bytes);
  }
  CHECK(outline(without(kForeign, "max_position_embeddings")).max_positions == 2048);
  json rows = kForeign;
  rows["num_key_value_heads"] = 2;
  rows["head_dim"] = 4;
  CHECK(outline(rows).shape.kv_bytes_per_position() == 2 * 2 * 3 * 2 * 4);
  CHECK(outline(kForeign).shape.kv_bytes_per_position() == 0);
  for (const char* key : {"num_experts_per_tok", "num_experts", "num_local_experts",
                          "n_routed_experts", "moe_num_experts"}) {
    json routed = kForeign;
    routed[key] = 2;
    CHECK(outline(routed).routes);
    for (const json& none : {json(1), json(0), json(nullptr), json(false)}) {
      routed[key] = none;
      CHECK_FALSE(outline(routed).routes);
    }
    routed[key] = json::array({4, 4});
    CHECK(outline(routed).routes);
    routed.erase(key);
    routed["ffn_config"] = {{key, 2}};
    CHECK(outline(routed).routes);
  }
}

TEST_CASE("a size that is missing or out of range is named") {
  CHECK(refusal(without(kForeign, "vocab_size")).find("missing vocab_size: ") != std::string::npos);
  CHECK(
      refusal(without(kForeign, "hidden_size")).find("missing hidden_size or n_embd or d_model") !=
      std::string::npos);
  for (const json& value : {json(0), json(-1), json("7"), json(7.5), json(16'777'217)}) {
    json config = kForeign;
    config["vocab_size"] = value;
    INFO(value.dump());
    CHECK(refusal(config).find("vocab_size is ") != std::string::npos);
  }
  json longest = kForeign;
  longest["vocab_size"] = 16'777'216;
  CHECK(refusal(longest) == "accepted");
}

TEST_CASE("the outline's hash is over names and bytes of all tensors") {
  const TemporaryFolder place;
  const fs::path folder = folder_with(place, kForeign);
  const ModelWeights whole = load_outline(folder, "mine");
  CHECK(whole.name == "mine");
  CHECK(whole.model_type == "zebra");
  CHECK(whole.folder == fs::absolute(folder));
  CHECK(whole.layers.empty());
  CHECK(whole.sha256.size() == 64);
  CHECK(load_outline(folder, "other").sha256 == whole.sha256);
  std::fstream file(folder / "model.safetensors", std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(-1, std::ios::end);
  const char last = static_cast<char>(file.get());
  file.seekp(-1, std::ios::end);
  file.put(static_cast<char>(last ^ 1));
  file.close();
  CHECK(load_outline(folder, "mine").sha256 != whole.sha256);
  write_file(folder / "manifest.json",
             R"({"files": {"model.safetensors": {"sha256": ")" + std::string(64, '0') + "\"}}}");
  CHECK(error_line([&] { load_outline(folder, "mine"); }).find("sha256") != std::string::npos);
}

TEST_CASE("the values that transformers makes of stored tensors") {
  const TemporaryFolder place;
  write_file(place.path() / "config.json", kForeign.dump());
  const json header = {{"a", {{"dtype", "F8_E4M3"}, {"shape", {5}}, {"data_offsets", {0, 5}}}},
                       {"b", {{"dtype", "BF16"}, {"shape", {1}}, {"data_offsets", {5, 7}}}},
                       {"c", {{"dtype", "F32"}, {"shape", {1, 3}}, {"data_offsets", {7, 19}}}},
                       {"d", {{"dtype", "U8"}, {"shape", {2}}, {"data_offsets", {19, 21}}}}};
  std::string size(8, '\0');
  size[0] = static_cast<char>(header.dump().size() % 256);
  size[1] = static_cast<char>(header.dump().size() / 256);
  write_file(place.path() / "model.safetensors", size + header.dump() + std::string(21, '\0'));
  const ModelConfig found = outline_config(place.path());
  CHECK(found.outline_bytes == 21);
  CHECK(found.outline_values == 5 + 1 + 3 + 2 * 2);
}

TEST_CASE("transformers is the truth where it is asked for, or where no family fits") {
  using enum TruthChoice;
  const TemporaryFolder own, foreign, broken;
  write_micro_model(own.path());
  folder_with(foreign, kForeign);
  folder_with(broken, {{"model_type", 5}});
  const auto truth = [](const fs::path& folder, TruthChoice choice) {
    const Model model = resolve_model(folder.string(), choice);
    return std::pair(model.truth == Truth::kTransformers, model.is_outline);
  };
  using Found = std::pair<bool, bool>;
  CHECK(truth(own.path(), kMkbench) == Found{false, false});
  CHECK(truth(own.path(), kAuto) == Found{false, false});
  CHECK(truth(own.path(), kTransformers) == Found{true, false});
  CHECK(truth(foreign.path(), kMkbench) == Found{false, false});  // and its config is refused
  CHECK(truth(foreign.path(), kAuto) == Found{true, true});
  CHECK(truth(foreign.path(), kTransformers) == Found{true, true});
  CHECK(truth(broken.path(), kAuto) == Found{false, false});
  const TemporaryFolder quantised;
  write_micro_model(quantised.path());
  json config = json::parse(std::ifstream(quantised.path() / "config.json"));
  config["quantization_config"] = nullptr;
  write_file(quantised.path() / "config.json", config.dump());
  CHECK(truth(quantised.path(), kAuto) == Found{false, false});
  config["quantization_config"] = {{"quant_method", "fp8"}};
  write_file(quantised.path() / "config.json", config.dump());
  CHECK(truth(quantised.path(), kAuto) == Found{true, true});
  CHECK(resolve_model("tiny", kAuto).truth == Truth::kMkbench);
  CHECK(resolve_model("tiny", kTransformers).truth == Truth::kTransformers);
  CHECK(has_committed_truth(resolve_model("tiny")));
  CHECK_FALSE(has_committed_truth(resolve_model("tiny", kTransformers)));
  CHECK(resolve_model("synthetic:cut", kAuto).truth == Truth::kMkbench);
  write_file(own.path() / "adapter_config.json", "{}");
  CHECK(resolve_model(own.path().string(), kAuto).truth == Truth::kMkbench);
  CHECK(error_line([&] {
          resolve_model(own.path().string(), kTransformers);
        }).find("adapter_config.json") != std::string::npos);
  CHECK(error_line([] { resolve_model("synthetic:cut", kTransformers); }).find("closed form") !=
        std::string::npos);
  CHECK(model_config(resolve_model(foreign.path().string(), kAuto)).shape.vocab == 7);
  CHECK(load_model(resolve_model(foreign.path().string(), kAuto)).config.is_outline());
}

}  // namespace mkbench::testing
