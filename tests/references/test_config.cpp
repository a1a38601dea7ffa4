// Reads config.json as published, in the spellings of transformers 4 and 5. test_input_tables has
// the files that must be refused.
#include <nlohmann/json.hpp>
#include <string>

#include "references/base/json_strict.h"
#include "references/config.h"
#include "references/snapshot.h"
#include "tests/support/catch2.h"
#include "tests/support/micro_model.h"
#include "tests/support/thrown.h"

namespace mkbench::testing {
namespace {

// The published config.json of the 0.6B, with other values of some keys.
ModelConfig published(const nlohmann::json& edits) {
  const std::filesystem::path path = data_dir() / "qwen3-0.6b" / "config.json";
  nlohmann::json config = read_json_strict(path);
  config.update(edits);
  return parse_config(config.dump(), path.string());
}

}  // namespace

TEST_CASE("the published 0.6B config has the compiled shape") {
  const ModelConfig config = published(nlohmann::json::object());
  CHECK(config.shape == kQwen3_0_6B);
  CHECK(config.rope_theta == 1e6);
  CHECK(config.rope_theta_key == "rope_theta");
  CHECK(config.rms_norm_eps == 1e-6);
  CHECK(config.tie_word_embeddings);
  CHECK(config.max_positions == 40960);
}

TEST_CASE("larger models are read, and differ from the compiled shape where an engine looks") {
  const ModelConfig b1_7 = published({{"hidden_size", 2048}, {"intermediate_size", 6144}});
  CHECK(b1_7.shape.hidden == 2048);
  CHECK_FALSE(b1_7.shape.same_layer_shape(kQwen3_0_6B));
  const ModelConfig b4 = published({{"hidden_size", 2560},
                                    {"intermediate_size", 9728},
                                    {"num_hidden_layers", 36},
                                    {"num_attention_heads", 32}});
  CHECK(b4.shape.q_width() == 4096);
  CHECK(b4.shape.parameters(true) == 4'022'468'096);
  // A cut in layers has the layer shape of the whole: engines take the number of layers at run
  // time.
  CHECK(published({{"num_hidden_layers", 4}}).shape.same_layer_shape(kQwen3_0_6B));
}

TEST_CASE("rope_theta comes from the first of three places, which the result names") {
  const auto parse = [](const std::vector<ConfigEdit>& edits) {
    return parse_config(micro_config(edits), "config.json");
  };
  const ModelConfig v5 = parse(
      {{"rope_theta", ""}, {"rope_parameters", R"({"rope_type": "default", "rope_theta": 5e5})"}});
  CHECK(v5.rope_theta == 5e5);
  CHECK(v5.rope_theta_key == "rope_parameters.rope_theta");
  const ModelConfig scaling = parse({{"rope_theta", ""}, {"rope_scaling", R"({"rope_theta": 7})"}});
  CHECK(scaling.rope_theta == 7);
  CHECK(scaling.rope_theta_key == "rope_scaling.rope_theta");
  const ModelConfig both = parse({{"rope_parameters", R"({"rope_theta": 1000000.0})"}});
  CHECK(both.rope_theta_key == "rope_parameters.rope_theta");
}

TEST_CASE("a message starts with the given path and is one line") {
  const std::string message = error_line([] { parse_config("{\"a\nb\": 1", "some/config.json"); });
  CHECK(message.starts_with("some/config.json: not JSON at byte 3"));
}

}  // namespace mkbench::testing
