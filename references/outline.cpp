#include "references/outline.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <vector>

#include "references/base/error.h"
#include "references/base/json_strict.h"
#include "references/base/sha256.h"
#include "references/checkpoint_files.h"
#include "references/config_scan.h"

namespace mkbench {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int kMost = 16'777'216;  // of any of the values below; more means a damaged file
constexpr int kUnstated = 2048;    // taken for the longest context of a model that states none

struct OutlineField {
  std::vector<std::string> keys;   // as transformers' classes call it; the usual one first
  int ModelShape::*member;         // null: the longest context
  std::optional<int> otherwise{};  // of a model that does not state it; nullopt: it must
};

const std::vector<OutlineField>& outline_fields() {
  static const std::vector<OutlineField> fields = {
      {{"vocab_size"}, &ModelShape::vocab},
      {{"hidden_size", "n_embd", "d_model", "emb_dim"}, &ModelShape::hidden},
      {{"num_hidden_layers", "n_layer", "n_layers", "num_layers"}, &ModelShape::layers},
      {{"max_position_embeddings", "n_positions", "max_seq_len"}, nullptr, kUnstated},
      // By these the memory of KV rows is foretold.
      {{"num_key_value_heads"}, &ModelShape::kv_heads, 0},
      {{"head_dim"}, &ModelShape::head_dim, 0},
  };
  return fields;
}

// Numbers of experts, all of them or those of a token, as models with a router state them.
constexpr const char* kExperts[] = {"num_experts_per_tok", "num_experts", "num_local_experts",
                                    "n_routed_experts", "moe_num_experts"};

bool states_experts(const json& object) {
  return std::any_of(std::begin(kExperts), std::end(kExperts), [&](const char* key) {
    const json value = object.value(key, json());
    return value.is_array() || (value.is_number_integer() && value.get<int64_t>() > 1);
  });
}

// Whether a router chooses among experts. A model without one may state null, 0 or 1 of them.
bool has_router(const json& object) {
  const auto nested = object.find("ffn_config");
  return states_experts(object) ||
         (nested != object.end() && nested->is_object() && states_experts(*nested));
}

int value_of(const json& object, const OutlineField& field, const std::string& path) {
  for (const std::string& key : field.keys) {
    const auto at = object.find(key);
    if (at == object.end() || at->is_null()) continue;
    if (at->is_number_unsigned() && at->get<uint64_t>() >= 1 && at->get<uint64_t>() <= kMost)
      return at->get<int>();
    throw Error(ErrorKind::kBadInput, fmt::format("{}: {} is {}, wanted an integer from 1 to {}",
                                                  path, key, describe(*at), kMost));
  }
  if (field.otherwise) return *field.otherwise;
  throw Error(ErrorKind::kBadInput, fmt::format("{}: missing {}: write the number there, as "
                                                "transformers' config of this model has it",
                                                path, fmt::join(field.keys, " or ")));
}

// Words and unsigned bytes may hold values of four bits (MXFP4, GPTQ, AWQ, NF4); fewer are not foreseen.
int64_t values_of(const TensorEntry& entry) {
  const bool whole =
      entry.dtype.starts_with("F") || entry.dtype.starts_with("BF") || entry.dtype == "I8";
  if (!whole) return 2 * static_cast<int64_t>(entry.bytes());
  return std::accumulate(entry.shape.begin(), entry.shape.end(), int64_t{1},
                         [](int64_t n, uint64_t size) { return n * static_cast<int64_t>(size); });
}

// The object that describes the decoder: the file's, or text_config of a model with other parts.
const json& text_object(const json& root) {
  const auto text = root.is_object() ? root.find("text_config") : root.end();
  return text != root.end() && text->is_object() ? *text : root;
}

ModelConfig outline_of(const json& root, const std::string& path, const Checkpoint& checkpoint) {
  const json& object = text_object(root);
  ModelConfig config;
  for (const OutlineField& field : outline_fields()) {
    const int value = value_of(object, field, path);
    (field.member != nullptr ? config.shape.*field.member : config.max_positions) = value;
  }
  config.routes = has_router(object);
  for (const auto& [name, located] : checkpoint.tensors) {
    config.outline_bytes += static_cast<int64_t>(located.entry->bytes());
    config.outline_values += values_of(*located.entry);
  }
  return config;
}

std::string model_type_of(const json& root) {
  const auto type = root.is_object() ? root.find("model_type") : root.end();
  return type != root.end() && type->is_string() ? type->get<std::string>() : "";
}

std::string hash_tensors(const Checkpoint& checkpoint) {
  constexpr uint64_t kPart = 1 << 24;
  Sha256 hash;
  std::vector<std::byte> part;
  for (const auto& [name, located] : checkpoint.tensors) {
    hash.update(name.c_str(), name.size() + 1);
    for (uint64_t at = 0; at < located.entry->bytes(); at += part.size()) {
      part.resize(std::min(kPart, located.entry->bytes() - at));
      located.file->read(*located.entry, at, part);
      hash.update(part.data(), part.size());
    }
  }
  return hash.hex();
}

}  // namespace

bool is_foreign_model(const fs::path& folder) {
  try {
    const json root = read_config_json(folder / "config.json");
    const std::string type = model_type_of(root);
    const bool quantised = root.is_object() && !root.value("quantization_config", json()).is_null();
    return !type.empty() && (quantised || find_family(type) == nullptr);
  } catch (const Error&) {
    return false;
  }
}

bool is_loadable_config(const fs::path& folder) {
  try {
    read_config(folder / "config.json");
    return true;
  } catch (const Error&) {
    return false;
  }
}

ModelConfig outline_config(const fs::path& folder) {
  const fs::path path = folder / "config.json";
  ModelFindings rules(ModelFindings::Mode::kThrowFirst);
  return outline_of(read_config_json(path), path.string(), open_checkpoint(folder, rules));
}

ModelWeights load_outline(const fs::path& folder, const std::string& name,
                          const std::string& sha256) {
  const fs::path path = folder / "config.json";
  ModelFindings rules(ModelFindings::Mode::kThrowFirst);
  const json root = read_config_json(path);
  const auto checkpoint = std::make_shared<const Checkpoint>(open_checkpoint(folder, rules));
  if (sha256.empty()) check_manifest(folder, *checkpoint);
  ModelWeights weights;
  weights.name = name;
  weights.config = outline_of(root, path.string(), *checkpoint);
  weights.model_type = model_type_of(root);
  weights.sha256 = sha256.empty() ? hash_tensors(*checkpoint) : sha256;
  for (const auto& file : checkpoint->files) file->check_unchanged();
  weights.checkpoint = checkpoint;
  std::error_code ignored;
  weights.folder = fs::absolute(folder, ignored);
  return weights;
}

}  // namespace mkbench
