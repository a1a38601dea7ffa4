// Rows C1-C17: defects of config.json.
#include <sys/stat.h>

#include "tests/support/input_case.h"
#include "tests/support/micro_model.h"

namespace mkbench::testing {
namespace {

namespace fs = std::filesystem;
using Named = std::vector<std::string>;

constexpr const char* kFile = "config.json";

auto text_of(std::string text) {
  return [text = std::move(text)](const fs::path& folder) { write_file(folder / kFile, text); };
}

// A table of edits to a sound config. Every message must name the file too.
class Table {
 public:
  void text(const char* row, const std::string& what, const std::string& content, Named named) {
    add(row, what, text_of(content), std::move(named));
  }
  void edit(const char* row, const std::vector<ConfigEdit>& edits, Named named) {
    std::string what;
    for (const ConfigEdit& e : edits)
      what += (what.empty() ? "" : ", ") + e.key + " = " + (e.value.empty() ? "(absent)" : e.value);
    add(row, what.substr(0, 100), text_of(micro_config(edits)), std::move(named));
  }
  void legal(const char* row, const std::vector<ConfigEdit>& edits) { edit(row, edits, {}); }
  void add(const char* row, const std::string& what, std::function<void(const fs::path&)> make,
           Named named) {
    if (!named.empty()) named.push_back(kFile);
    cases.push_back({row, what, std::move(make), std::move(named)});
  }

  std::vector<InputCase> cases;
};

void add_document_cases(Table& table) {
  table.add("C1", "missing", [](const fs::path& folder) { fs::remove(folder / kFile); },
            {"No such file"});
  table.add("C1", "a FIFO",
            [](const fs::path& folder) {
              fs::remove(folder / kFile);
              mkfifo((folder / kFile).c_str(), 0600);
            },
            {"FIFO"});
  table.text("C1", "empty", "", {"not JSON at byte 0"});
  table.text("C1", "cut off", micro_config().substr(0, 40), {"not JSON at byte"});
  table.text("C1", "a list", "[]", {"must be an object"});
  table.text("C1", "over 1 MB", micro_config({{"x", "\"" + std::string(1'000'000, 'x') + "\""}}),
             {"bytes", "at most 1000000"});
  table.text("C17", "NaN", micro_config({{"rms_norm_eps", "NaN"}}), {"not JSON at byte"});
  table.text("C17", "Infinity", micro_config({{"rope_theta", "Infinity"}}), {"not JSON at byte"});
  table.text("C17", "1e999", micro_config({{"rope_theta", "1e999"}}),
             {"not JSON at byte", "1e999"});
  table.text("C17", "byte order mark", "\xef\xbb\xbf" + micro_config(),
             {"byte order mark at byte 0"});
  table.text("C17", "a key twice", "{\"head_dim\": 8," + micro_config().substr(1),
             {"duplicate key 'head_dim'"});
  table.text("C17", "a key twice, deeper", micro_config({{"x", R"({"y": 1, "y": 2})"}}),
             {"duplicate key 'y'", "'x'"});
  table.text("C17", "NUL", micro_config() + std::string(1, '\0'), {"NUL at byte"});
  table.text("C17", "comment", "{// head" + micro_config().substr(1), {"not JSON at byte 1"});
}

void add_presence_cases(Table& table) {
  for (const char* key :
       {"hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
        "intermediate_size", "vocab_size", "rms_norm_eps", "tie_word_embeddings",
        "max_position_embeddings", "hidden_act", "model_type"})
    table.edit("C2", {{key, ""}}, {std::string("missing ") + key});
  table.text("C2", "all of them", "{}",
             {"missing hidden_size, intermediate_size, num_hidden_layers, num_attention_heads, "
              "num_key_value_heads, head_dim, vocab_size, max_position_embeddings, model_type, "
              "hidden_act, rms_norm_eps, tie_word_embeddings"});
  table.edit("C6", {{"head_dim", ""}},
             {"missing head_dim", "hidden_size / num_attention_heads", "128"});
  for (const char* key :
       {"hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
        "intermediate_size", "vocab_size", "max_position_embeddings", "head_dim"}) {
    const std::pair<const char*, const char*> values[] = {{"\"1024\"", "'1024'"},
                                                          {"1024.5", "1024.5"},
                                                          {"true", "true"},
                                                          {"null", "null"},
                                                          {"0", "0"},
                                                          {"-4", "-4"},
                                                          {"1000000000", "1000000000"},
                                                          {"1e3", "1000.0"},
                                                          {"[4]", "an array of 1"}};
    for (const auto& [value, shown] : values)
      table.edit("C3", {{key, value}},
                 {std::string(key) + " is " + shown, "wanted an integer from"});
  }
  table.edit("C3", {{"vocab_size", "18446744073709551616"}}, {"'vocab_size'", "overflow"});
  for (const char* value : {"\"1e-6\"", "0", "-1e-6", "true", "1.0"})
    table.edit("C3", {{"rms_norm_eps", value}}, {"rms_norm_eps is ", "wanted a number above 0"});
  for (const char* value : {"\"true\"", "1", "null"})
    table.edit("C3", {{"tie_word_embeddings", value}},
               {"tie_word_embeddings is ", "wanted true or false"});
}

void add_kind_cases(Table& table) {
  for (const char* kind : {"gemma3_text", "qwen3_moe", "qwen3_omni_moe"})
    table.edit("C4", {{"model_type", "\"" + std::string(kind) + "\""}},
               {"model_type is '" + std::string(kind) + "'",
                "supported: 'qwen3', 'qwen2', 'llama', 'mistral' or 'qwen3_tts'"});
  table.edit("C4", {{"model_type", "\"qwen3_tts\""}},
             {"talker_config is absent, wanted an object"});
  table.edit("C4", {{"architectures", "\"Qwen3ForCausalLM\""}},
             {"architectures is 'Qwen3ForCausalLM'", "wanted ['Qwen3ForCausalLM']"});
  table.edit("C5", {{"num_attention_heads", "3"}, {"num_key_value_heads", "2"}},
             {"3", "2", "multiple"});
  table.edit("C5", {{"head_dim", "5"}}, {"head_dim is 5", "even"});
  table.edit("C10", {{"attention_bias", "true"}}, {"attention_bias is true", "unsupported"});
  table.edit("C10", {{"attention_bias", "\"false\""}}, {"attention_bias is 'false'"});
  for (const char* first : {"", "1"})
    table.edit(
        "C10",
        {{"use_sliding_window", "true"}, {"sliding_window", "4"}, {"max_window_layers", first}},
        {"use_sliding_window is true", "unsupported"});
  table.edit("C10", {{"layer_types", R"(["full_attention", "sliding_attention"])"}},
             {"layer_types[1] is 'sliding_attention'", "unsupported"});
  table.edit("C10", {{"layer_types", R"(["full_attention"])"}},
             {"layer_types is an array of 1", "num_hidden_layers = 2"});
  table.legal("C10", {{"layer_types", R"(["full_attention", "full_attention"])"},
                      {"attention_bias", ""},
                      {"use_sliding_window", ""}});
  table.edit("C11", {{"hidden_act", "\"gelu\""}}, {"hidden_act is 'gelu'", "'silu'"});
  for (const char* dtype : {"\"float16\"", "\"float32\"", "\"float64\"", "8"}) {
    table.legal("C15", {{"torch_dtype", dtype}});
    table.legal("C15", {{"torch_dtype", ""}, {"dtype", dtype}});
  }
  table.legal("C15", {{"dtype", "\"bfloat16\""}});
  table.legal("C15", {{"torch_dtype", ""}, {"dtype", "\"bfloat16\""}});
  table.edit("C16", {{"quantization_config", R"({"quant_method": "fp8"})"}},
             {"quantization_config", "unsupported"});
  table.legal("C16", {{"quantization_config", "null"}});
}

void add_rope_cases(Table& table) {
  const std::string plain = R"({"rope_type": "default", "rope_theta": 1000000})";
  table.edit("C8", {{"rope_theta", ""}},
             {"no rope_theta", "rope_parameters.rope_theta", "rope_scaling.rope_theta"});
  for (const char* value : {"0", "-1", "\"1000000\"", "true", "1e13"})
    table.edit("C8", {{"rope_theta", value}}, {"rope_theta is ", "wanted a number above 0"});
  table.edit("C8", {{"rope_parameters", R"({"rope_type": "default", "rope_theta": 10000})"}},
             {"rope_parameters.rope_theta is 10000", "rope_theta is 1000000"});
  table.edit("C8", {{"rope_scaling", R"({"rope_theta": 10000})"}},
             {"rope_theta is 1000000", "rope_scaling.rope_theta is 10000"});
  table.edit(
      "C8",
      {{"rope_theta", ""}, {"rope_parameters", plain}, {"rope_scaling", R"({"rope_theta": 1})"}},
      {"rope_parameters.rope_theta is 1000000", "rope_scaling.rope_theta is 1"});
  table.edit(
      "C8",
      {{"rope_theta", ""}, {"rope_parameters", plain}, {"rope_scaling", R"({"type": "default"})"}},
      {"rope_scaling.rope_theta is absent", "rope_parameters"});
  table.legal("C8", {{"rope_theta", ""}, {"rope_parameters", plain}, {"rope_scaling", "{}"}});
  table.edit("C8", {{"rope_theta", ""}, {"rope_parameters", R"({"rope_type": "default"})"}},
             {"no rope_theta"});
  table.edit("C8", {{"rope_parameters", "5"}}, {"rope_parameters is 5", "object"});
  table.legal("C8", {{"rope_parameters", plain}});
  table.legal("C8", {{"rope_theta", ""}, {"rope_parameters", plain}});
  table.legal("C8", {{"rope_theta", ""},
                     {"rope_scaling", R"({"type": "default", "rope_theta": 1000000.0})"}});
  table.edit("C8", {{"rope_theta", "null"}}, {"no rope_theta"});
  for (const char* type : {"yarn", "dynamic", "linear", "mrope", "llama3"}) {
    const std::string object = R"("rope_type": ")" + std::string(type) + "\"";
    table.edit("C9", {{"rope_scaling", "{" + object + "}"}},
               {"rope_scaling.rope_type is '" + std::string(type) + "'", "unsupported"});
    table.edit("C9", {{"rope_parameters", "{" + object + ", \"rope_theta\": 1000000}"}},
               {"rope_parameters.rope_type is '" + std::string(type) + "'", "unsupported"});
    table.edit("C9", {{"rope_scaling", R"({"type": ")" + std::string(type) + "\"}"}},
               {"rope_scaling.type is '" + std::string(type) + "'", "unsupported"});
  }
  table.edit("C9", {{"rope_scaling", R"({"type": "default", "mrope_section": [16, 24, 24]})"}},
             {"rope_scaling.'mrope_section'", "unsupported"});
  table.edit("C9", {{"rope_scaling", R"({"factor": 4.0})"}},
             {"rope_scaling.'factor' = 4.0", "unsupported"});
  table.edit("C9", {{"partial_rotary_factor", "0.5"}},
             {"partial_rotary_factor is 0.5", "unsupported"});
  table.edit("C9",
             {{"rope_parameters", R"({"rope_theta": 1000000, "partial_rotary_factor": 0.25})"}},
             {"rope_parameters.partial_rotary_factor is 0.25", "unsupported"});
  table.legal("C9", {{"partial_rotary_factor", "1.0"}, {"rope_scaling", "{}"}});
}

// Contradictions between config.json and the tensors; the message must name both.
void add_shape_cases(Table& table) {
  table.edit("C7", {{"head_dim", "2"}},
             {"model.safetensors", "q_proj.weight", "[8, 4]", "wanted [4, 4]", "head_dim 2"});
  table.edit(
      "C7", {{"num_attention_heads", "4"}},
      {"model.safetensors", "q_proj.weight", "[8, 4]", "wanted [16, 4]", "num_attention_heads 4"});
  table.edit("C7", {{"intermediate_size", "16"}},
             {"gate_proj.weight", "[8, 4]", "wanted [16, 4]", "intermediate_size 16"});
  table.edit("C7", {{"hidden_size", "8"}}, {"[6, 4]", "wanted [6, 8]", "hidden_size 8"});
  table.edit("C13", {{"vocab_size", "7"}},
             {"model.safetensors", "model.embed_tokens.weight", "[6, 4]", "wanted [7, 4]",
              "vocab_size 7"});
}

}  // namespace

std::vector<InputCase> config_cases() {
  Table table;
  add_document_cases(table);
  add_presence_cases(table);
  add_kind_cases(table);
  add_rope_cases(table);
  add_shape_cases(table);
  return table.cases;
}

}  // namespace mkbench::testing
