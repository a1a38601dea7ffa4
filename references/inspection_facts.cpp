#include "references/inspection_facts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "references/base/json_strict.h"
#include "references/checkpoint_rules.h"
#include "references/config_fields.h"
#include "references/model/rope.h"
#include "references/runnable.h"

namespace mkbench {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

void add(ModelFindings& findings, Severity severity, const std::string& field,
         const std::string& expected, const std::string& found, const std::string& source,
         const std::string& text = {}) {
  findings.add({.severity = severity,
                .field = field,
                .expected = expected,
                .found = found,
                .source = source,
                .text = text.empty() ? fmt::format("{} is {}", field, found) : text},
               source);
}

struct Dimension {
  const char* key;
  int ModelShape::*member;
};
constexpr Dimension kLayerDimensions[] = {{"hidden_size", &ModelShape::hidden},
                                          {"intermediate_size", &ModelShape::intermediate},
                                          {"num_attention_heads", &ModelShape::heads},
                                          {"num_key_value_heads", &ModelShape::kv_heads},
                                          {"head_dim", &ModelShape::head_dim}};

// Keys of config.json that rules or facts look at.
constexpr const char* kKnownKeys[] = {"model_type",
                                      "architectures",
                                      "hidden_size",
                                      "intermediate_size",
                                      "num_hidden_layers",
                                      "num_attention_heads",
                                      "num_key_value_heads",
                                      "head_dim",
                                      "vocab_size",
                                      "max_position_embeddings",
                                      "hidden_act",
                                      "rms_norm_eps",
                                      "tie_word_embeddings",
                                      "rope_theta",
                                      "rope_parameters",
                                      "rope_scaling",
                                      "partial_rotary_factor",
                                      "quantization_config",
                                      "sliding_window",
                                      "layer_types",
                                      "dtype",
                                      "torch_dtype"};

// Keys that may be absent, and what their absence is taken for.
struct OptionalKey {
  const char* key;
  const char* taken_for;
};
constexpr OptionalKey kOptionalKeys[] = {{"layer_types", "full attention in every layer"},
                                         {"partial_rotary_factor", "1"}};

// A key of the file, which may be any text, escaped and cut for a finding's source.
std::string shown_key(const std::string& key) {
  const std::string quoted = in_quotes(key, 60);
  return quoted.substr(1, quoted.size() - 2);
}

bool is_special_id(const std::string& key) {
  return key.ends_with("_token_id") || (key.starts_with("codec_") && key.ends_with("_id"));
}

class ConfigFacts {
 public:
  ConfigFacts(const json& root, const ConfigScan& scan, ModelFindings& findings)
      : root_(root), scan_(scan), findings_(findings) {
    const std::string key(scan.family->config_key);
    const auto inner = key.empty() ? root.end() : root.find(key);
    is_inner_ = inner != root.end() && inner->is_object();
    if (is_inner_) decoder_ = &*inner;
    prefix_ = key.empty() ? "config.json:" : "config.json:" + key + ".";
  }

  void add_all() {
    add_kind();
    add_shape_facts(scan_.config, prefix_, findings_);
    add_rope();
    show(*decoder_, prefix_, "tie_word_embeddings");
    show(*decoder_, prefix_, "rms_norm_eps", "above 0");
    show(*decoder_, prefix_, "hidden_act", "'silu'");
    for (const std::string_view key : scan_.family->unsupported_keys)
      show(*decoder_, prefix_, std::string(key), "false");
    show(*decoder_, prefix_, "sliding_window",
         scan_.family->null_key == "sliding_window" ? "null" : "");
    for (const char* key : {"dtype", "torch_dtype"}) show(*decoder_, prefix_, key, kConfigTypes);
    add_absent();
    add_ids(root_, "config.json:");
    if (is_inner_) add_ids(*decoder_, prefix_);
    add_unread_keys();
  }

 private:
  void show(const json& object, const std::string& prefix, const std::string& key,
            const std::string& expected = {}) {
    const auto at = object.find(key);
    if (at != object.end()) inform(findings_, key, describe(*at), prefix + key, expected);
  }

  void add_kind() {
    const Family& family = *scan_.family;
    const std::string path(family.config_key);
    show(root_, "config.json:", "model_type", loadable_families());
    inform(findings_, "decoder's config", path.empty() ? "the whole file" : path,
           "config.json:" + (path.empty() ? "model_type" : path));
    const std::string source = "config.json:model_type";
    inform(findings_, "input of a step", std::string(family.input), source,
           std::string(kTokenInput));
    inform(findings_, "output of a step", std::string(family.output), source,
           std::string(kLogitsOutput));
  }

  void add_rope() {
    const ModelConfig& config = scan_.config;
    if (!config.rope.theta_key.empty())
      inform(findings_, "rope_theta", fmt::format("{}", config.rope.theta),
             prefix_ + config.rope.theta_key, "above 0");
    for (const char* object : {"rope_parameters", "rope_scaling"}) {
      const auto at = decoder_->find(object);
      if (at == decoder_->end() || !at->is_object()) continue;
      for (const char* key : {"rope_type", "type"}) {
        if (at->contains(key))
          inform(findings_, "rope_type", describe(at->at(key)),
                 fmt::format("{}{}.{}", prefix_, object, key),
                 std::string(rope_types(*scan_.family)));
      }
    }
    if (const std::string scaling = scaling_text(config.rope); !scaling.empty()) {
      const bool in_scaling = ConfigFields::find(*decoder_, "rope_scaling") != nullptr;
      inform(findings_, "RoPE scaling", scaling,
             prefix_ + (in_scaling ? "rope_scaling" : "rope_parameters"));
    }
    if (scan_.mrope_section.empty()) return;
    const int half = config.shape.head_dim / 2;
    const bool collapses = scan_.mrope_sum() == half;
    inform(findings_, "mrope_section",
           fmt::format("[{}]{}; {}", fmt::join(scan_.mrope_section, ", "),
                       scan_.mrope_interleaved ? " interleaved" : "",
                       collapses
                           ? "plain RoPE while the rows of positions are equal"
                           : fmt::format("no plain RoPE: the sum is not head_dim / 2 = {}", half)),
           prefix_ + "rope_scaling.mrope_section");
  }

  void add_absent() {
    for (const OptionalKey& optional : kOptionalKeys) {
      if (!decoder_->contains(optional.key))
        inform(findings_, optional.key, fmt::format("absent: {}", optional.taken_for),
               prefix_ + optional.key);
    }
    for (const std::string_view name : scan_.family->unsupported_keys) {
      const std::string key(name);
      if (!decoder_->contains(key)) inform(findings_, key, "absent: false", prefix_ + key);
    }
    if (ConfigFields::find(*decoder_, "head_dim") == nullptr && scan_.family->may_omit_head_dim)
      inform(findings_, "head_dim", "absent: hidden_size / num_attention_heads",
             prefix_ + "head_dim");
    if (ConfigFields::find(*decoder_, "num_key_value_heads") == nullptr &&
        scan_.family->may_omit_kv_heads)
      inform(findings_, "num_key_value_heads", "absent: num_attention_heads",
             prefix_ + "num_key_value_heads");
    if (!decoder_->contains("tie_word_embeddings") && scan_.family->may_omit_tie)
      inform(findings_, "tie_word_embeddings",
             fmt::format("absent: {} is a tensor of its own", scan_.family->head),
             prefix_ + "tie_word_embeddings");
  }

  void add_ids(const json& object, const std::string& prefix) {
    for (const auto& [key, value] : object.items()) {
      if (!is_special_id(key) || value.is_null()) continue;
      const int vocab = scan_.config.shape.vocab;
      const bool outside = value.is_number_unsigned() && vocab > 0 && &object == decoder_ &&
                           value.get<uint64_t>() >= static_cast<uint64_t>(vocab);
      inform(findings_, shown_key(key),
             describe(value) + (outside ? " (outside the vocabulary)" : ""),
             prefix + shown_key(key));
    }
  }

  void add_unread_keys() {
    std::vector<std::string> names;
    for (const auto& [key, value] : decoder_->items()) {
      const auto& unsupported = scan_.family->unsupported_keys;
      const bool is_known =
          std::find(std::begin(kKnownKeys), std::end(kKnownKeys), key) != std::end(kKnownKeys) ||
          std::find(unsupported.begin(), unsupported.end(), key) != unsupported.end();
      if (!is_known && !is_special_id(key)) names.push_back(shown_key(key));
    }
    if (names.empty()) return;
    const size_t count = names.size();
    names.resize(std::min<size_t>(count, 24));
    inform(
        findings_, "keys not looked at",
        fmt::format("{}: {}{}", count, fmt::join(names, ", "), count > names.size() ? " .." : ""),
        is_inner_ ? prefix_.substr(0, prefix_.size() - 1) : "config.json");
  }

  const json& root_;
  const ConfigScan& scan_;
  ModelFindings& findings_;
  const json* decoder_ = &root_;
  bool is_inner_ = false;
  std::string prefix_;  // of a finding's source: "config.json:" or "config.json:talker_config."
};

void add_vocabulary(const char* field, std::string_view name, const ConfigScan& scan,
                    const Checkpoint& checkpoint, ModelFindings& findings) {
  const auto found = checkpoint.tensors.find(std::string(name));
  if (found == checkpoint.tensors.end() || found->second.entry->shape.empty()) return;
  const int vocab = scan.config.shape.vocab;
  inform(findings, field, fmt::format("{}", found->second.entry->shape[0]),
         fs::path(found->second.file->path()).filename().string() + ":" + std::string(name),
         vocab > 0 ? fmt::format("{} as vocab_size", vocab) : "");
}

// A part of a layer that its family has or lacks, against the nearest compiled shape.
void add_part(ModelFindings& findings, const std::string& field, bool has, bool wanted,
              std::string_view compiled, const std::string& source) {
  const auto text = [](bool there) { return there ? "in every layer" : "none"; };
  const bool same = has == wanted;
  add(findings, same ? Severity::kInformation : Severity::kNeedsRebuild, field,
      fmt::format("{} ({})", text(wanted), compiled), text(has), source,
      same ? ""
           : fmt::format("{}: {}; the kernels are compiled for {} ({})", field, text(has),
                         text(wanted), compiled));
}

void add_uncovered(const Family& family, const Checkpoint& checkpoint, ModelFindings& findings) {
  for (const HeldPart& held : uncovered_parts(family, checkpoint))
    inform(findings, "part not covered", held.text(), std::string(held.part->prefix) + "*");
  if (!family.beside.empty())
    inform(findings, "part not covered", std::string(family.beside), "not in this checkpoint");
}

}  // namespace

void inform(ModelFindings& findings, const std::string& field, const std::string& found,
            const std::string& source, const std::string& expected) {
  add(findings, Severity::kInformation, field, expected, found, source);
}

void add_shape_facts(const ModelConfig& config, const std::string& source,
                     ModelFindings& findings) {
  const ModelShape& s = config.shape;
  const CompiledShape& compiled = nearest_compiled(s);
  for (const Dimension& dimension : kLayerDimensions) {
    const int found = s.*dimension.member, wanted = compiled.shape.*dimension.member;
    if (found == 0) continue;
    const bool same = found == wanted;
    add(findings, same ? Severity::kInformation : Severity::kNeedsRebuild, dimension.key,
        fmt::format("{} ({})", wanted, compiled.name), fmt::format("{}", found),
        source + dimension.key,
        same ? ""
             : fmt::format("{} is {}; the kernels are compiled for {} ({})", dimension.key, found,
                           wanted, compiled.name));
  }
  add_part(findings, "QK-norm", s.qk_norm, compiled.shape.qk_norm, compiled.name,
           source + "model_type");
  add_part(findings, "biases of q, k and v", s.qkv_bias, compiled.shape.qkv_bias, compiled.name,
           source + "model_type");
  if (s.layers > 0)
    inform(findings, "num_hidden_layers", fmt::format("{}", s.layers), source + "num_hidden_layers",
           s.layers % 2 == 0 ? "any" : "any (ring: an even number)");
  if (s.heads > 0 && s.kv_heads > 0 && s.heads % s.kv_heads == 0)
    inform(findings, "query heads of a kv head", fmt::format("{}", s.gqa_group()),
           source + "num_attention_heads", "a whole number");
  if (s.heads > 0 && s.head_dim > 0 && s.hidden > 0)
    inform(findings, "width of q", fmt::format("{} (hidden_size {})", s.q_width(), s.hidden),
           source + "head_dim", "num_attention_heads * head_dim");
  if (s.vocab > 0)
    inform(findings, "vocab_size", fmt::format("{}", s.vocab), source + "vocab_size", "any");
  if (config.max_positions > 0)
    inform(findings, "max_position_embeddings", fmt::format("{}", config.max_positions),
           source + "max_position_embeddings", "any (nothing is compiled in)");
  if (s.layers == 0 || s.kv_heads == 0 || s.head_dim == 0) return;
  const int64_t bytes = s.kv_bytes_per_position();
  inform(findings, "KV cache",
         config.max_positions > 0
             ? fmt::format("{} bytes a position, {} at max_position_embeddings", bytes,
                           bytes * config.max_positions)
             : fmt::format("{} bytes a position", bytes),
         source + "num_key_value_heads");
}

void add_config_facts(const json& root, const ConfigScan& scan, ModelFindings& findings) {
  ConfigFacts(root, scan, findings).add_all();
}

void add_tensor_facts(const ConfigScan& scan, const Checkpoint& checkpoint,
                      ModelFindings& findings) {
  const Family& family = *scan.family;
  add_vocabulary("vocabulary of the embedding", family.embedding, scan, checkpoint, findings);
  add_vocabulary("vocabulary of the head", family.head, scan, checkpoint, findings);
  const std::string files = fs::path(checkpoint.names_file).filename().string();
  std::map<std::string_view, size_t> types;
  uint64_t bytes = 0;
  for (const auto& [name, located] : checkpoint.tensors) {
    ++types[located.entry->dtype];
    bytes += located.entry->bytes();
  }
  std::string counts;
  for (const auto& [type, count] : types)
    counts += fmt::format("{}{} {}", counts.empty() ? "" : ", ", count, type);
  inform(findings, "tensors by dtype", counts.empty() ? "none" : counts, files, kReadTypes);
  inform(findings, "bytes of tensors",
         fmt::format("{} in {} file{}", bytes, checkpoint.files.size(),
                     checkpoint.files.size() == 1 ? "" : "s"),
         files);
  add_uncovered(family, checkpoint, findings);
}

std::string published_shape(const ModelShape& shape) {
  for (const ShapeRow& row : kPublishedModels) {
    if (row.shape == shape) return row.name;
  }
  return {};
}

}  // namespace mkbench
