#include "references/config.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "references/base/error.h"
#include "references/base/json_strict.h"
#include "references/config_fields.h"
#include "references/config_scan.h"
#include "references/foreign_folder.h"

namespace mkbench {
namespace {

using nlohmann::json;

// Qwen3's head_dim is never derived: two derivations are in use, and neither fits every published
// model.
constexpr const char* kWhyNotDerived =
    "; head_dim is not derived from the others: versions of transformers disagree between "
    "hidden_size / num_attention_heads and 128";

constexpr int kMostHeadDim = 1'024;

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
    {"head_dim", 2, kMostHeadDim, &ModelShape::head_dim},
    {"vocab_size", 1, 16'777'216, &ModelShape::vocab},
    {"max_position_embeddings", 1, 16'777'216, nullptr},
};
// Further required keys; each is read by a line of its own below.
constexpr const char* kOtherNeeded[] = {"model_type", "hidden_act", "rms_norm_eps",
                                        "tie_word_embeddings"};

// Reads a config.json. `top` is the file's object, `own` the decoder's, which is the same one in a
// model without a config_key.
class ConfigReader {
 public:
  ConfigReader(const ConfigFields& top, const ConfigFields& own, ConfigScan& scan)
      : top_(top), own_(own), scan_(scan) {}

  void read() {
    check_architectures();
    for (const char* key : {"quantization_config", "quantization"}) {  // the latter is MLX's
      if (top_.find(key) != nullptr)
        top_.report(Severity::kUnsupported, key, "absent", "present",
                    fmt::format("{} is present: quantised checkpoints are unsupported; take the "
                                "model that it was made from",
                                key));
    }
    check_all_present();
    ModelConfig& config = scan_.config;
    for (const IntegerField& field : kIntegerFields) {
      const int value = integer(field);
      (field.member != nullptr ? config.shape.*field.member : config.max_positions) = value;
    }
    set_layers(*scan_.family, config.shape);
    derive_heads();
    check_heads();
    if (own_.has("rms_norm_eps"))
      config.rms_norm_eps =
          own_.number(own_.object(), "rms_norm_eps", "rms_norm_eps", 0.1).value_or(0);
    read_tie();
    read_rope(own_, scan_);
    check_unsupported();
    check_dtype();
  }

 private:
  bool is_needed(const std::string& key) const {
    if (key == "tie_word_embeddings") return !scan_.family->may_omit_tie;
    if (key == "head_dim") return !scan_.family->may_omit_head_dim;
    if (key == "num_key_value_heads") return !scan_.family->may_omit_kv_heads;
    return true;
  }

  void check_architectures() const {
    const auto at = top_.object().find("architectures");
    const bool is_there = at != top_.object().end();
    const std::string wanted = fmt::format("['{}']", scan_.family->architecture);
    if (is_there && !at->is_array() && !at->is_null())
      return top_.fatal("architectures", wanted, describe(*at));
    const bool nameable = is_there && at->is_array() && !at->empty();
    if (nameable && at->size() == 1 && at->front() == scan_.family->architecture) return;
    const std::string found = nameable
                                  ? "[" + describe(at->front()) + (at->size() > 1 ? ", ...]" : "]")
                              : is_there ? describe(*at)
                                         : "absent";
    top_.note("architectures", wanted, found,
              "model_type and the tensors decide, as in transformers");
  }

  void check_all_present() const {
    std::vector<std::pair<std::string, const ConfigFields*>> missing;
    for (const IntegerField& field : kIntegerFields) {
      if (is_needed(field.key) && !own_.has(field.key)) missing.emplace_back(field.key, &own_);
    }
    for (const std::string key : kOtherNeeded) {
      const ConfigFields& fields = key == "model_type" ? top_ : own_;
      if (is_needed(key) && !fields.has(key)) missing.emplace_back(key, &fields);
    }
    std::string names;
    for (const auto& [key, fields] : missing) names += (names.empty() ? "" : ", ") + key;
    for (const auto& [key, fields] : missing) {
      const std::string& shown = own_.ends_at_first() ? names : key;
      fields->report(
          Severity::kFatal, key, "a value", "absent",
          fmt::format("missing {} (nothing is filled in from defaults{})", shown,
                      shown.find("head_dim") == std::string::npos ? "" : kWhyNotDerived));
    }
  }

  // Returns 0 if the value is absent or, with a finding, if it is no integer in the field's range.
  int integer(const IntegerField& field) const {
    const auto at = own_.object().find(field.key);
    if (at == own_.object().end() || (at->is_null() && !is_needed(field.key))) return 0;
    // nlohmann holds negative integers signed, all others unsigned, and makes a float of a number
    // with a fraction or an exponent.
    const bool fits = at->is_number_unsigned() &&
                      at->get<uint64_t>() >= static_cast<uint64_t>(field.min) &&
                      at->get<uint64_t>() <= static_cast<uint64_t>(field.max);
    if (fits) return static_cast<int>(at->get<uint64_t>());
    own_.fatal(field.key, fmt::format("an integer from {} to {}", field.min, field.max),
               describe(*at));
    return 0;
  }

  // What transformers takes for a missing head_dim or num_key_value_heads in such a family.
  void derive_heads() {
    ModelShape& s = scan_.config.shape;
    if (s.heads == 0) return;
    if (!is_needed("num_key_value_heads") && own_.find("num_key_value_heads") == nullptr)
      s.kv_heads = s.heads;
    if (is_needed("head_dim") || own_.find("head_dim") != nullptr || s.hidden == 0) return;
    s.head_dim = s.hidden / s.heads;
    if (s.hidden % s.heads == 0 && s.head_dim <= kMostHeadDim) return;
    own_.report(Severity::kFatal, "head_dim", "a value", "absent",
                fmt::format("head_dim is absent, and hidden_size {} / num_attention_heads {} is no "
                            "integer of at most {}",
                            s.hidden, s.heads, kMostHeadDim));
  }

  void check_heads() const {
    const ModelShape& s = scan_.config.shape;
    if (s.heads > 0 && s.kv_heads > 0 && s.heads % s.kv_heads != 0)
      own_.report(Severity::kFatal, "num_attention_heads",
                  fmt::format("a multiple of num_key_value_heads {}", s.kv_heads),
                  fmt::format("{}", s.heads),
                  fmt::format("num_attention_heads {} is not a multiple of num_key_value_heads {}",
                              s.heads, s.kv_heads));
    if (s.head_dim % 2 != 0)
      own_.report(
          Severity::kFatal, "head_dim", "an even number", fmt::format("{}", s.head_dim),
          fmt::format("head_dim is {}, wanted an even number: RoPE turns pairs", s.head_dim));
  }

  void read_tie() {
    const bool stated = own_.has("tie_word_embeddings");
    if (!stated && is_needed("tie_word_embeddings")) return;
    const std::optional<bool> tied = stated ? own_.boolean("tie_word_embeddings") : false;
    scan_.tie_is_known = tied.has_value();
    scan_.config.tie_word_embeddings = tied.value_or(false);
  }

  void check_unsupported() const {
    const auto act = own_.object().find("hidden_act");
    const std::string_view wanted = activation_name(scan_.family->activation);
    const bool is_alias = wanted == "silu" && act != own_.object().end() && *act == "swish";
    if (act != own_.object().end() && *act != wanted && !is_alias)
      own_.report(Severity::kUnsupported, "hidden_act", fmt::format("'{}'", wanted), describe(*act),
                  fmt::format("hidden_act is {}, supported: '{}'", describe(*act), wanted));
    for (const std::string_view name : scan_.family->unsupported_keys) {
      const std::string key(name);
      if (own_.find(key) == nullptr || !own_.boolean(key.c_str()).value_or(false)) continue;
      if (key != "use_sliding_window" || !is_windowless()) own_.unsupported(key, "false", "true");
    }
    if (const std::string key(scan_.family->null_key); !key.empty()) {
      if (!own_.has(key))
        own_.fatal(key, "null", "absent");
      else if (const json* value = own_.find(key); value != nullptr && !is_longest(*value))
        own_.unsupported(key, "null", describe(*value));
    }
    if (const json* types = own_.find("layer_types")) check_layer_types(*types);
  }

  // A window of at least max_position_embeddings hides no position.
  bool is_longest(const json& window) const {
    return window.is_number_unsigned() && scan_.config.max_positions > 0 &&
           window.get<uint64_t>() >= static_cast<uint64_t>(scan_.config.max_positions);
  }

  // Whether all layers have full attention in spite of use_sliding_window: layer_types (which is checked below) says so;
  // there is no window; or the first layer that has one, max_window_layers, is beyond the last.
  bool is_windowless() const {
    if (own_.find("layer_types") != nullptr) return true;
    const json* window = own_.find("sliding_window");
    if (own_.has("sliding_window") && (window == nullptr || is_longest(*window))) return true;
    const json* first = own_.find("max_window_layers");
    const int layers = scan_.config.shape.layers;
    return first != nullptr && first->is_number_unsigned() && layers > 0 &&
           first->get<uint64_t>() >= static_cast<uint64_t>(layers);
  }

  void check_layer_types(const json& types) const {
    const int layers = scan_.config.shape.layers;
    if (!types.is_array() || (layers > 0 && types.size() != static_cast<size_t>(layers)))
      own_.fatal("layer_types", fmt::format("an array of num_hidden_layers = {}", layers),
                 describe(types));
    if (!types.is_array()) return;
    for (size_t i = 0; i < types.size(); ++i) {
      if (types[i] != "full_attention")
        own_.unsupported(fmt::format("layer_types[{}]", i), "'full_attention'", describe(types[i]));
    }
  }

  void check_dtype() const {
    for (const char* key : {"dtype", "torch_dtype"}) {
      const json* value = own_.find(key);
      if (value != nullptr && *value != "bfloat16" && *value != "float16" && *value != "float32")
        own_.note(key, kConfigTypes, describe(*value), "the types of the tensors decide");
    }
  }

  const ConfigFields& top_;
  const ConfigFields& own_;
  ConfigScan& scan_;
};

// The family of the file's model_type; Qwen3 if it is missing or, with a finding, unknown.
const Family& family_of(const json& root, const ConfigFields& top) {
  const auto type = root.find("model_type");
  if (type == root.end()) return kQwen3Family;  // ConfigReader reports all missing keys
  const bool is_text = type->is_string();
  const Family* family = is_text ? find_family(type->get_ref<const std::string&>()) : nullptr;
  if (family == nullptr)
    top.report(
        Severity::kUnsupported, "model_type", loadable_families(), describe(*type),
        fmt::format("model_type is {}, supported: {}", describe(*type), loadable_families()));
  return family != nullptr ? *family : kQwen3Family;
}

// The decoder's object inside `root`; null, and a finding, if it is missing.
const json* decoder_object(const json& root, const Family& family, const std::string& path,
                           ModelFindings& findings) {
  if (family.config_key.empty()) return &root;
  const auto at = root.find(std::string(family.config_key));
  if (at != root.end() && at->is_object()) return &*at;
  const std::string found = at == root.end() ? "absent" : describe(*at);
  ConfigFields(root, "", path, findings).fatal(std::string(family.config_key), "an object", found);
  return nullptr;
}

nlohmann::ordered_json rope_text(const Rope& rope) {
  nlohmann::ordered_json object = {{"rope_type", rope_type(rope.scaling)},
                                   {"rope_theta", rope.theta}};
  if (rope.scaling != RopeScaling::kNone) object["factor"] = rope.factor;
  if (rope.scaling == RopeScaling::kLlama3) {
    object["low_freq_factor"] = rope.low_freq_factor;
    object["high_freq_factor"] = rope.high_freq_factor;
    object["original_max_position_embeddings"] = rope.original_positions;
  }
  return object;
}

}  // namespace

ConfigScan scan_config(const json& root, const std::string& path, ModelFindings& findings) {
  ConfigScan scan;
  const ConfigFields top(root, "", path, findings);
  if (!root.is_object()) {
    findings.add({.severity = Severity::kFatal,
                  .field = "config.json",
                  .expected = "an object",
                  .found = describe(root),
                  .source = "config.json",
                  .text = fmt::format("must be an object, found {}", describe(root))},
                 path);
    return scan;
  }
  // The family is checked first, because a foreign config lacks or renames half of the keys.
  scan.family = &family_of(root, top);
  const std::string key(scan.family->config_key);
  const json* decoder = decoder_object(root, *scan.family, path, findings);
  const ConfigFields own(decoder != nullptr ? *decoder : root, key.empty() ? "" : key + ".", path,
                         findings);
  ConfigReader(top, own, scan).read();
  return scan;
}

ModelConfig parse_config(std::string_view text, const std::string& path) {
  ModelFindings findings(ModelFindings::Mode::kThrowFirst);
  return scan_config(parse_json_strict(text, path, {.bytes = kMaxConfigBytes}), path, findings)
      .config;
}

nlohmann::json read_config_json(const std::filesystem::path& path) {
  check_link(path);
  std::error_code unreadable;
  if (!std::filesystem::exists(path, unreadable) && !unreadable) {
    if (const std::string form = foreign_folder(path.parent_path()); !form.empty())
      bad_input(path.string(), "missing; the folder " + form);
  }
  return parse_json_strict(read_small_file(path, kMaxConfigBytes), path.string(),
                           {.bytes = kMaxConfigBytes});
}

std::string config_text(const ModelConfig& config) {
  const ModelShape& s = config.shape;
  const Family& family = family_with(s);
  nlohmann::ordered_json root = {
      {"architectures", nlohmann::ordered_json::array({family.architecture})},
      {"model_type", family.model_type},
      {"dtype", "bfloat16"},
      {"hidden_act", activation_name(s.activation)},
      {"attention_dropout", 0.0},
      {"use_cache", true},
      {"rms_norm_eps", config.rms_norm_eps},
      {"rope_parameters", rope_text(config.rope)},
      {"tie_word_embeddings", config.tie_word_embeddings},
  };
  for (const std::string_view key : family.unsupported_keys) root[std::string(key)] = false;
  for (const IntegerField& field : kIntegerFields)
    root[field.key] = field.member != nullptr ? s.*field.member : config.max_positions;
  return root.dump(2) + "\n";
}

ConfigScan read_config_scan(const std::filesystem::path& path) {
  ModelFindings findings(ModelFindings::Mode::kThrowFirst);
  return scan_config(read_config_json(path), path.string(), findings);
}

ModelConfig read_config(const std::filesystem::path& path) { return read_config_scan(path).config; }

}  // namespace mkbench
