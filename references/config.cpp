#include "references/config.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "references/base/error.h"
#include "references/base/json_strict.h"

namespace mkbench {
namespace {

using nlohmann::json;

constexpr size_t kMaxConfigBytes = 1'000'000;

// head_dim is never derived: two derivations are in use, and neither fits every published model.
constexpr const char* kWhyNotDerived =
    "; head_dim is not derived from the others: versions of transformers disagree between "
    "hidden_size / num_attention_heads and 128";

// An integer field and the range that holds every real model; a value outside means a damaged file.
struct IntegerField {
  const char* key;
  int min, max;
  int ModelShape::*member;  // null: max_position_embeddings
};
constexpr IntegerField kIntegerFields[] = {
    {"hidden_size", 1, 65'536, &ModelShape::hidden},
    {"intermediate_size", 1, 1'048'576, &ModelShape::intermediate},
    {"num_hidden_layers", 1, 1'024, &ModelShape::layers},
    {"num_attention_heads", 1, 1'024, &ModelShape::heads},
    {"num_key_value_heads", 1, 1'024, &ModelShape::kv_heads},
    {"head_dim", 2, 1'024, &ModelShape::head_dim},
    {"vocab_size", 1, 16'777'216, &ModelShape::vocab},
    {"max_position_embeddings", 1, 16'777'216, nullptr},
};
// Further keys that must be there; each is read by a line of its own below.
constexpr const char* kOtherNeeded[] = {"model_type", "architectures", "hidden_act", "rms_norm_eps",
                                        "tie_word_embeddings"};

class ConfigReader {
 public:
  ConfigReader(const json& root, const std::string& path) : root_(root), path_(path) {}

  ModelConfig read() const {
    if (!root_.is_object()) fail(fmt::format("must be an object, found {}", describe(root_)));
    // The kind of model is checked first, because a foreign config lacks or renames half of the
    // keys.
    check_string("model_type", "qwen3");
    check_architectures();
    refuse_if_present("quantization_config");
    check_all_present();
    ModelConfig config;
    for (const IntegerField& field : kIntegerFields) {
      const int value = integer(field);
      (field.member != nullptr ? config.shape.*field.member : config.max_positions) = value;
    }
    check_heads(config.shape);
    config.rms_norm_eps = number(root_, "rms_norm_eps", "rms_norm_eps", 0.1);
    config.tie_word_embeddings = boolean("tie_word_embeddings");
    read_rope(config);
    check_unsupported(config.shape.layers);
    check_dtype();
    return config;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw Error(ErrorKind::kBadInput, path_ + ": " + what);
  }

  // The value of a key, or null when it is absent or JSON null (which these files use alike).
  static const json* find(const json& object, const char* key) {
    const auto at = object.find(key);
    return at == object.end() || at->is_null() ? nullptr : &*at;
  }

  void check_all_present() const {
    std::vector<std::string> missing;
    for (const IntegerField& field : kIntegerFields) {
      if (!root_.contains(field.key)) missing.push_back(field.key);
    }
    for (const char* key : kOtherNeeded) {
      if (!root_.contains(key)) missing.push_back(key);
    }
    if (missing.empty()) return;
    fail(fmt::format("missing {} (nothing is filled in from defaults{})", fmt::join(missing, ", "),
                     root_.contains("head_dim") ? "" : kWhyNotDerived));
  }

  int integer(const IntegerField& field) const {
    const json& value = root_.at(field.key);
    // nlohmann holds negative integers signed, all others unsigned, and makes a float of a number
    // with a fraction or an exponent.
    const bool fits = value.is_number_unsigned() &&
                      value.get<uint64_t>() >= static_cast<uint64_t>(field.min) &&
                      value.get<uint64_t>() <= static_cast<uint64_t>(field.max);
    if (!fits)
      fail(fmt::format("{} is {}, wanted an integer from {} to {}", field.key, describe(value),
                       field.min, field.max));
    return static_cast<int>(value.get<uint64_t>());
  }

  double number(const json& object, const char* key, const std::string& shown, double max) const {
    const json& value = object.at(key);
    const double read = value.is_number() ? value.get<double>() : 0;
    if (!(read > 0 && read <= max))
      fail(fmt::format("{} is {}, wanted a number above 0 and at most {}", shown, describe(value),
                       max));
    return read;
  }

  bool boolean(const char* key) const {
    const json& value = root_.at(key);
    if (!value.is_boolean())
      fail(fmt::format("{} is {}, wanted true or false", key, describe(value)));
    return value.get<bool>();
  }

  void check_string(const char* key, const char* wanted) const {
    const auto at = root_.find(key);
    if (at == root_.end()) return;  // check_all_present() names it together with the others
    if (!at->is_string() || at->get_ref<const std::string&>() != wanted)
      fail(fmt::format("{} is {}, supported: '{}'", key, describe(*at), wanted));
  }

  void check_architectures() const {
    const auto at = root_.find("architectures");
    if (at == root_.end()) return;
    if (at->is_array() && at->size() == 1 && at->front() == "Qwen3ForCausalLM") return;
    const bool nameable = at->is_array() && !at->empty();
    fail(fmt::format("architectures is {}, supported: ['Qwen3ForCausalLM']",
                     nameable ? "[" + describe(at->front()) + (at->size() > 1 ? ", ...]" : "]")
                              : describe(*at)));
  }

  void refuse_if_present(const char* key) const {
    if (find(root_, key) != nullptr)
      fail(fmt::format("{} is present: quantised checkpoints are unsupported", key));
  }

  void check_heads(const ModelShape& s) const {
    if (s.heads % s.kv_heads != 0)
      fail(fmt::format("num_attention_heads {} is not a multiple of num_key_value_heads {}",
                       s.heads, s.kv_heads));
    if (s.head_dim % 2 != 0)
      fail(fmt::format("head_dim is {}, wanted an even number: RoPE turns pairs", s.head_dim));
  }

  // Refuses an object that describes RoPE unless everything in it means plain RoPE.
  void check_rope_object(const std::string& name, const json& rope) const {
    if (!rope.is_object())
      fail(fmt::format("{} is {}, wanted null or an object", name, describe(rope)));
    for (const auto& [key, value] : rope.items()) {
      const std::string shown = name + "." + key;
      if (value.is_null() || key == "rope_theta") continue;
      if (key == "rope_type" || key == "type") {
        if (value != "default")
          fail(fmt::format("{} is {}: unsupported, only 'default' is", shown, describe(value)));
      } else if (key == "partial_rotary_factor") {
        check_partial_rotary(shown, value);
      } else {
        fail(fmt::format("{} = {}: unsupported RoPE variant", name + "." + in_quotes(key, 60),
                         describe(value)));
      }
    }
  }

  void check_partial_rotary(const std::string& shown, const json& value) const {
    if (!value.is_number() || value.get<double>() != 1.0)
      fail(fmt::format("{} is {}: unsupported, only 1 is", shown, describe(value)));
  }

  // transformers 4 writes rope_theta at the top, 5 writes rope_parameters, some files have
  // rope_scaling. The best-known bug of loaders is a theta that silently becomes 10000, so all
  // sources must agree.
  void read_rope(ModelConfig& config) const {
    const json* parameters = find(root_, "rope_parameters");
    const json* scaling = find(root_, "rope_scaling");
    if (parameters != nullptr) check_rope_object("rope_parameters", *parameters);
    if (scaling != nullptr) check_rope_object("rope_scaling", *scaling);
    if (const json* factor = find(root_, "partial_rotary_factor"))
      check_partial_rotary("partial_rotary_factor", *factor);

    struct Source {
      const json* object;
      const char* shown;
    };
    const std::array<Source, 3> sources = {{{parameters, "rope_parameters.rope_theta"},
                                            {&root_, "rope_theta"},
                                            {scaling, "rope_scaling.rope_theta"}}};
    for (const Source& source : sources) {
      if (source.object == nullptr || !source.object->contains("rope_theta")) continue;
      const double theta = number(*source.object, "rope_theta", source.shown, 1e12);
      if (config.rope_theta_key.empty()) {
        config.rope_theta = theta;
        config.rope_theta_key = source.shown;
      } else if (theta != config.rope_theta) {
        fail(fmt::format("{} is {} but {} is {}", config.rope_theta_key, config.rope_theta,
                         source.shown, theta));
      }
    }
    if (config.rope_theta_key.empty())
      fail(
          "no rope_theta: looked for rope_parameters.rope_theta, rope_theta and "
          "rope_scaling.rope_theta; a default would be a guess");
  }

  void check_unsupported(int layers) const {
    check_string("hidden_act", "silu");
    for (const char* key : {"attention_bias", "use_sliding_window"}) {
      if (find(root_, key) != nullptr && boolean(key))
        fail(fmt::format("{} is true: unsupported, only false is", key));
    }
    const json* types = find(root_, "layer_types");
    if (types == nullptr) return;
    if (!types->is_array() || types->size() != static_cast<size_t>(layers))
      fail(fmt::format("layer_types is {}, wanted an array of num_hidden_layers = {}",
                       describe(*types), layers));
    for (size_t i = 0; i < types->size(); ++i) {
      if ((*types)[i] != "full_attention")
        fail(fmt::format("layer_types[{}] is {}: unsupported, only 'full_attention' is", i,
                         describe((*types)[i])));
    }
  }

  void check_dtype() const {
    const json* dtype = find(root_, "dtype");
    const json* torch_dtype = find(root_, "torch_dtype");
    if (dtype != nullptr && torch_dtype != nullptr && *dtype != *torch_dtype)
      fail(fmt::format("dtype is {} but torch_dtype is {}", describe(*dtype),
                       describe(*torch_dtype)));
    check_dtype_value("dtype", dtype);
    check_dtype_value("torch_dtype", torch_dtype);
  }
  void check_dtype_value(const char* key, const json* value) const {
    if (value != nullptr && *value != "bfloat16")
      fail(fmt::format("{} is {}, wanted 'bfloat16'", key, describe(*value)));
  }

  const json& root_;
  const std::string& path_;
};

}  // namespace

ModelConfig parse_config(std::string_view text, const std::string& path) {
  JsonLimits limits;
  limits.bytes = kMaxConfigBytes;
  return ConfigReader(parse_json_strict(text, path, limits), path).read();
}

std::string config_text(const ModelConfig& config) {
  nlohmann::ordered_json root = {
      {"architectures", nlohmann::ordered_json::array({"Qwen3ForCausalLM"})},
      {"model_type", "qwen3"},
      {"dtype", "bfloat16"},
      {"hidden_act", "silu"},
      {"attention_bias", false},
      {"attention_dropout", 0.0},
      {"use_cache", true},
      {"use_sliding_window", false},
      {"rms_norm_eps", config.rms_norm_eps},
      {"rope_parameters", {{"rope_type", "default"}, {"rope_theta", config.rope_theta}}},
      {"tie_word_embeddings", config.tie_word_embeddings},
  };
  for (const IntegerField& field : kIntegerFields)
    root[field.key] = field.member != nullptr ? config.shape.*field.member : config.max_positions;
  return root.dump(2) + "\n";
}

ModelConfig read_config(const std::filesystem::path& path) {
  return parse_config(read_small_file(path, kMaxConfigBytes), path.string());
}

}  // namespace mkbench
