#include "tests/support/micro_model.h"

#include <cstdlib>
#include <fstream>
#include <map>
#include <stdexcept>

#include "references/base/bf16.h"
#include "references/base/sha256.h"
#include "references/weights.h"

namespace mkbench::testing {

namespace fs = std::filesystem;

TemporaryFolder::TemporaryFolder() {
  std::string name = (fs::temp_directory_path() / "mkbench-test-XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp failed: " + name);
  path_ = name;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

void write_file(const fs::path& path, std::string_view bytes) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  out.close();
  if (!out) throw std::runtime_error("cannot write " + path.string());
}

std::string micro_config(const std::vector<ConfigEdit>& edits) {
  std::map<std::string, std::string> fields = {
      {"architectures", "[\"Qwen3ForCausalLM\"]"},
      {"model_type", "\"qwen3\""},
      {"attention_bias", "false"},
      {"head_dim", "4"},
      {"hidden_act", "\"silu\""},
      {"hidden_size", "4"},
      {"intermediate_size", "8"},
      {"max_position_embeddings", "64"},
      {"num_attention_heads", "2"},
      {"num_hidden_layers", "2"},
      {"num_key_value_heads", "1"},
      {"rms_norm_eps", "1e-06"},
      {"rope_scaling", "null"},
      {"rope_theta", "1000000"},
      {"sliding_window", "null"},
      {"tie_word_embeddings", "true"},
      {"torch_dtype", "\"bfloat16\""},
      {"use_sliding_window", "false"},
      {"vocab_size", "6"},
  };
  for (const ConfigEdit& edit : edits) {
    if (edit.value.empty()) {
      fields.erase(edit.key);
    } else {
      fields[edit.key] = edit.value;
    }
  }
  std::string text = "{";
  for (const auto& [key, value] : fields) {
    if (text.size() > 1) text += ",";
    text += "\n  \"" + key + "\": " + value;
  }
  return text + "\n}\n";
}

FileTensor make_tensor(const std::string& name, std::vector<uint64_t> shape, int seed) {
  FileTensor tensor{name, "BF16", std::move(shape), {}};
  uint64_t count = 1;
  for (const uint64_t dimension : tensor.shape) count *= dimension;
  for (uint64_t i = 0; i < count; ++i) {
    const Bf16 value =
        to_bf16(0.25f + 0.0625f * static_cast<float>((7 * i + static_cast<uint64_t>(seed)) % 97));
    tensor.data += static_cast<char>(value.bits & 0xff);
    tensor.data += static_cast<char>(value.bits >> 8);
  }
  return tensor;
}

std::vector<FileTensor> micro_tensors() {
  ModelConfig config;
  config.shape = kMicro;
  std::vector<FileTensor> tensors;
  for (const NamedTensor& t : tensor_table(config)) {
    if (t.name == "lm_head.weight") continue;
    std::vector<uint64_t> shape;
    if (!t.is_vector) shape.push_back(static_cast<uint64_t>(t.rows));
    shape.push_back(static_cast<uint64_t>(t.cols));
    tensors.push_back(make_tensor(t.name, shape, static_cast<int>(tensors.size()) * 11));
  }
  return tensors;
}

FileTensor& find_tensor(std::vector<FileTensor>& tensors, std::string_view name) {
  for (FileTensor& tensor : tensors) {
    if (tensor.name == name) return tensor;
  }
  throw std::runtime_error("no tensor " + std::string(name));
}

FileTensor stored_as(const FileTensor& tensor, const std::string& dtype) {
  FileTensor stored{tensor.name, dtype, tensor.shape, {}};
  for (size_t at = 0; at < tensor.data.size(); at += 2) {
    const uint32_t bits = static_cast<uint8_t>(tensor.data[at]) |
                          static_cast<uint32_t>(static_cast<uint8_t>(tensor.data[at + 1])) << 8;
    const bool up = at % 4 != 0;
    uint32_t more = (bits << 16) + (up ? 0x7fffu : -0x7fffu);
    size_t bytes = 4;
    if (dtype == "F16") {
      // The exponent's bias is 112 less, and the fraction has 3 bits more.
      more = (bits & 0x8000u) | ((((bits & 0x7fffu) - (112u << 7)) << 3) + (up ? 3u : -3u));
      bytes = 2;
    }
    for (size_t i = 0; i < bytes; ++i) stored.data += static_cast<char>(more >> (8 * i) & 0xff);
  }
  return stored;
}

std::string container(std::string_view header, std::string_view data) {
  std::string bytes;
  for (size_t i = 0; i < 8; ++i)
    bytes += static_cast<char>(static_cast<uint64_t>(header.size()) >> (8 * i) & 0xff);
  bytes += header;
  bytes += data;
  return bytes;
}

std::string safetensors_bytes(const std::vector<FileTensor>& tensors, size_t header_residue) {
  std::string header = "{", data;
  for (const FileTensor& tensor : tensors) {
    std::string shape;
    for (const uint64_t dimension : tensor.shape)
      shape += (shape.empty() ? "" : ",") + std::to_string(dimension);
    header += (header.size() > 1 ? ",\"" : "\"") + tensor.name + "\":{\"dtype\":\"" + tensor.dtype +
              "\",\"shape\":[" + shape + "],\"data_offsets\":[" + std::to_string(data.size()) +
              "," + std::to_string(data.size() + tensor.data.size()) + "]}";
    data += tensor.data;
  }
  header += "}";
  while (header.size() % 8 != header_residue) header += ' ';
  return container(header, data);
}

void write_micro_model(const fs::path& folder) {
  write_file(folder / "config.json", micro_config());
  write_file(folder / "model.safetensors", safetensors_bytes(micro_tensors()));
}

void write_manifest(const fs::path& folder) {
  std::string text;
  for (const char* name : {"config.json", "model.safetensors"}) {
    text += std::string(text.empty() ? "{\"files\": {" : ", ") + "\"" + name +
            "\": {\"sha256\": \"" + sha256_file(folder / name) +
            "\", \"bytes\": " + std::to_string(fs::file_size(folder / name)) + "}";
  }
  write_file(folder / "manifest.json", text + "}}\n");
}

}  // namespace mkbench::testing
