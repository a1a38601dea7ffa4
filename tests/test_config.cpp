// Reads config.json as published, in the spellings of transformers 4 and 5. test_input_tables has
// the files that must be refused.
#include <string>

#include "references/base/error.h"
#include "references/config.h"
#include "tests/support/catch2.h"
#include "tests/support/micro_model.h"

namespace mkbench::testing {
namespace {

// The published config.json of the 0.6B model, its dimensions as parameters.
std::string published(int hidden, int intermediate, int layers, int heads) {
  return R"({
  "architectures": ["Qwen3ForCausalLM"],
  "attention_bias": false,
  "attention_dropout": 0.0,
  "bos_token_id": 151643,
  "eos_token_id": 151645,
  "head_dim": 128,
  "hidden_act": "silu",
  "hidden_size": )" +
         std::to_string(hidden) + R"(,
  "initializer_range": 0.02,
  "intermediate_size": )" +
         std::to_string(intermediate) + R"(,
  "max_position_embeddings": 40960,
  "max_window_layers": 28,
  "model_type": "qwen3",
  "num_attention_heads": )" +
         std::to_string(heads) + R"(,
  "num_hidden_layers": )" +
         std::to_string(layers) + R"(,
  "num_key_value_heads": 8,
  "rms_norm_eps": 1e-06,
  "rope_scaling": null,
  "rope_theta": 1000000,
  "sliding_window": null,
  "tie_word_embeddings": true,
  "torch_dtype": "bfloat16",
  "transformers_version": "4.51.0",
  "use_cache": true,
  "use_sliding_window": false,
  "vocab_size": 151936
})";
}

}  // namespace

TEST_CASE("the published 0.6B config has the compiled shape") {
  const ModelConfig config = parse_config(published(1024, 3072, 28, 16), "config.json");
  CHECK(config.shape == kQwen3_0_6B);
  CHECK(config.rope_theta == 1e6);
  CHECK(config.rope_theta_key == "rope_theta");
  CHECK(config.rms_norm_eps == 1e-6);
  CHECK(config.tie_word_embeddings);
  CHECK(config.max_positions == 40960);
}

TEST_CASE("larger models are read, and differ from the compiled shape where an engine looks") {
  const ModelConfig b1_7 = parse_config(published(2048, 6144, 28, 16), "config.json");
  CHECK(b1_7.shape.hidden == 2048);
  CHECK_FALSE(b1_7.shape.same_layer_shape(kQwen3_0_6B));
  const ModelConfig b4 = parse_config(published(2560, 9728, 36, 32), "config.json");
  CHECK(b4.shape.q_width() == 4096);
  CHECK(b4.shape.parameters(true) == 4'022'468'096);
  // A cut in layers has the layer shape of the whole: engines take the number of layers at run
  // time.
  const ModelConfig cut = parse_config(published(1024, 3072, 4, 16), "config.json");
  CHECK(cut.shape.same_layer_shape(kQwen3_0_6B));
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
  try {
    parse_config("{\"a\nb\": 1", "some/config.json");
    FAIL("accepted");
  } catch (const Error& error) {
    const std::string message = error.what();
    CHECK(error.kind() == ErrorKind::kBadInput);
    CHECK(message.starts_with("some/config.json: not JSON at byte 3"));
    CHECK(message.find('\n') == std::string::npos);
  }
}

}  // namespace mkbench::testing
