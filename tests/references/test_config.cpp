// Reads config.json as published, in the spellings of transformers 4 and 5. test_input_tables has
// the files that must be refused.
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>

#include "references/base/json_strict.h"
#include "references/config.h"
#include "references/model/family.h"
#include "references/snapshot.h"
#include "tests/support/catch2.h"
#include "tests/support/llama3_rope.h"
#include "tests/support/micro_model.h"
#include "tests/support/random_model.h"
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
  CHECK(config.rope.theta == 1e6);
  CHECK(config.rope.theta_key == "rope_theta");
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
  CHECK(v5.rope.theta == 5e5);
  CHECK(v5.rope.theta_key == "rope_parameters.rope_theta");
  const ModelConfig scaling = parse({{"rope_theta", ""}, {"rope_scaling", R"({"rope_theta": 7})"}});
  CHECK(scaling.rope.theta == 7);
  CHECK(scaling.rope.theta_key == "rope_scaling.rope_theta");
  const ModelConfig both = parse({{"rope_parameters", R"({"rope_theta": 1000000.0})"}});
  CHECK(both.rope.theta_key == "rope_parameters.rope_theta");
}

// rope_scaling of Llama 3, edited.
nlohmann::json scaled(const nlohmann::json& edits) {
  nlohmann::json rope = {{"rope_type", "llama3"},
                         {"factor", 8.0},
                         {"low_freq_factor", 1.0},
                         {"high_freq_factor", 4.0},
                         {"original_max_position_embeddings", 8192}};
  if (!edits.is_null()) rope.update(edits);
  return rope;
}

TEST_CASE("each family says which tensors and which RoPE a model has") {
  const auto family = [](const char* type, const char* architecture, nlohmann::json edits) {
    edits.update({{"model_type", type}, {"architectures", {architecture}}});
    return published(edits);
  };
  const ModelConfig qwen2 = family("qwen2", "Qwen2ForCausalLM", {{"head_dim", nullptr}});
  CHECK((qwen2.shape.qkv_bias && !qwen2.shape.qk_norm));
  CHECK(qwen2.shape.head_dim == 64);  // hidden_size / num_attention_heads
  const ModelConfig llama =
      family("llama", "LlamaForCausalLM",
             {{"rope_scaling", scaled({})}, {"num_key_value_heads", nullptr}});
  CHECK_FALSE((llama.shape.qk_norm || llama.shape.qkv_bias));
  CHECK(llama.shape.kv_heads == llama.shape.heads);
  const Rope wanted = testing::llama3_rope(1e6, 8, 8192);
  CHECK(llama.rope.same_angles(wanted));
  CHECK(parse_config(config_text(llama), "written").rope.same_angles(wanted));
  CHECK(family("mistral", "MistralForCausalLM", {{"sliding_window", nullptr}}).shape ==
        family("llama", "LlamaForCausalLM", nlohmann::json::object()).shape);
}

TEST_CASE(
    "a family says what its layers compute, and a config is written as the family that does") {
  ModelShape shape = kOdd;
  Family family;
  family.norm_offset = 1;
  family.activation = Activation::kGeluTanh;
  set_layers(family, shape);
  CHECK((!shape.qk_norm && !shape.qkv_bias && shape.norm_offset == 1));
  CHECK((shape.activation == Activation::kGeluTanh && shape.embedding_multiplier == 1));
  family = {};
  family.qk_norm = family.qkv_bias = family.scales_embeddings = true;
  set_layers(family, shape);
  CHECK((shape.qk_norm && shape.qkv_bias && shape.norm_offset == 0));
  CHECK((shape.activation == Activation::kSilu && shape.embedding_multiplier == std::sqrt(20.0)));
  CHECK_THROWS_WITH(family_with(shape),
                    "config.json: no model_type has these layers: biases of q, k and v, embedding "
                    "times 4.47214");
  CHECK(!shape.has_qwen3_layers());
  for (const char* type : {"qwen3", "qwen2", "llama"}) {
    set_layers(*find_family(type), shape);
    CHECK(family_with(shape).model_type == type);
    CHECK(unlike_qwen3(shape).empty() == shape.has_qwen3_layers());
  }
  shape.norm_offset = 2;
  shape.activation = Activation::kGeluTanh;
  CHECK_THROWS_WITH(config_text({.shape = shape}),
                    "config.json: no model_type has these layers: no QK-norm, norm weights + 2, "
                    "gelu_pytorch_tanh");
}

TEST_CASE("what a family does not have is refused by name") {
  struct Row {
    const char *type, *architecture;
    nlohmann::json edits;
    const char* part;
  };
  const nlohmann::json llama3 = {{"rope_type", "llama3"}};
  const Row rows[] = {
      {"llama",
       "LlamaForCausalLM",
       {{"rope_scaling", scaled({{"high_freq_factor", 1.0}})}},
       "rope_scaling.high_freq_factor is 1, wanted above low_freq_factor 1"},
      {"llama",
       "LlamaForCausalLM",
       {{"rope_scaling", scaled({{"original_max_position_embeddings", 8192.5}})}},
       "wanted an integer"},
      {"llama",
       "LlamaForCausalLM",
       {{"rope_scaling", scaled({})}, {"original_max_position_embeddings", 4096}},
       "original_max_position_embeddings is 4096, wanted 8192 as in rope_scaling"},
      {"llama",
       "LlamaForCausalLM",
       {{"head_dim", nullptr},
        {"hidden_size", 16416},
        {"num_attention_heads", 16},
        {"num_key_value_heads", 8}},
       "is no integer of at most 1024"},
      {"llama", "LlamaForCausalLM", {{"quantization", {{"bits", 4}}}}, "quantization is present"},
      {"llama", "LlamaForCausalLM", {{"attention_bias", true}}, "attention_bias is true"},
      {"llama", "LlamaForCausalLM", {{"mlp_bias", true}}, "mlp_bias is true"},
      {"llama", "LlamaForCausalLM", {{"rope_scaling", llama3}}, "rope_scaling.factor is absent"},
      {"llama", "LlamaForCausalLM", {{"rope_scaling", {{"rope_type", "yarn"}}}}, "'llama3' is"},
      {"llama",
       "LlamaForCausalLM",
       {{"rope_scaling", {{"rope_type", "linear"}, {"factor", 8.0}}},
        {"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 1e6}}}},
       "rope_scaling.factor is 8.0, wanted absent as in rope_parameters"},
      {"llama",
       "LlamaForCausalLM",
       {{"head_dim", nullptr}, {"num_attention_heads", 24}},
       "hidden_size 1024 / num_attention_heads 24 is no integer"},
      {"mistral", "MistralForCausalLM", {{"sliding_window", 4096}}, "sliding_window is 4096"},
      {"mistral",
       "MistralForCausalLM",
       {{"num_key_value_heads", nullptr}},
       "num_key_value_heads is null"},
      {"qwen2",
       "Qwen2ForCausalLM",
       {{"num_key_value_heads", nullptr}},
       "num_key_value_heads is null"},
      {"qwen2",
       "Qwen2ForCausalLM",
       {{"use_sliding_window", true}, {"sliding_window", 40959}, {"max_window_layers", 27}},
       "use_sliding_window is true"},
      {"qwen3", "Qwen3ForCausalLM", {{"rope_scaling", llama3}}, "only 'default' is"},
  };
  for (const Row& row : rows) {
    nlohmann::json edits = row.edits;
    edits.update({{"model_type", row.type}, {"architectures", {row.architecture}}});
    INFO(edits.dump());
    CHECK_THAT(error_line([&] { published(edits); }), ContainsText(row.part));
  }
}

TEST_CASE("a key whose absence means a number to transformers must be there") {
  const std::vector<ConfigEdit> mistral = {{"model_type", "\"mistral\""},
                                           {"architectures", "[\"MistralForCausalLM\"]"}};
  CHECK(parse_config(micro_config(mistral), "config.json").shape.kv_heads == 1);
  for (const char* key : {"sliding_window", "num_key_value_heads"}) {
    std::vector<ConfigEdit> edits = mistral;
    edits.push_back({key, ""});
    const std::string line = error_line([&] { parse_config(micro_config(edits), "config.json"); });
    CHECK_THAT(line, ContainsText(key));
  }
}

TEST_CASE("a message starts with the given path and is one line") {
  const std::string message = error_line([] { parse_config("{\"a\nb\": 1", "some/config.json"); });
  CHECK(message.starts_with("some/config.json: not JSON at byte 3"));
}

}  // namespace mkbench::testing
