// A family of models as data: where a checkpoint of it has its config and tensors, and what its
// class in transformers computes. One file a family in families/, listed in family.cpp.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "references/model/architecture.h"

namespace mkbench {

// Tensors that belong to a model and that nothing here computes with.
struct UncoveredPart {
  std::string_view prefix;  // with which the tensors' names begin
  std::string_view what;
};

inline constexpr std::string_view kTokenInput = "token id", kLogitsOutput = "logits";

struct Family {
  std::string_view model_type, architecture;  // of config.json
  std::string_view config_key = "";   // the decoder's object in config.json; empty: the file
  std::string_view trunk = "model.";  // prefix of tensor names
  std::string_view embedding = "model.embed_tokens.weight", head = "lm_head.weight";
  std::string_view input = kTokenInput, output = kLogitsOutput;  // of a decode step
  // As in ModelShape; the multiplier of scaled embeddings is sqrt(hidden_size).
  bool qk_norm = false, qkv_bias = false, scales_embeddings = false;
  int norm_offset = 0;
  Activation activation = Activation::kSilu;
  bool scales_rope = false;  // config.json may ask for a RopeScaling
  bool mrope = false;        // RoPE with three rows of positions, which decoding keeps equal
  // What config.json may lack (the last two may also be null), and what that means: an untied head,
  // hidden_size / num_attention_heads, num_attention_heads. Other classes fill in a number.
  bool may_omit_tie = false, may_omit_head_dim = false, may_omit_kv_heads = false;
  // Keys of config.json that may be absent, null or false, because they ask for something else.
  std::span<const std::string_view> unsupported_keys{};
  // A key that must be there and null, because its absence asks for something else; empty: none.
  std::string_view null_key = "";
  std::span<const UncoveredPart> uncovered{};
  std::string_view beside = "";  // a part of the model that is in other files; empty: none
};

extern const Family kQwen3Family;  // the others are declared where they are listed

// The family of a model_type; null where it is not known.
const Family* find_family(std::string_view model_type);

// Sets the fields of a shape that follow from its family; its dimensions are set.
void set_layers(const Family& family, ModelShape& shape);

// What layers have that Qwen3's do not, and lack: "no QK-norm, norm weights + 1"; else empty.
std::string unlike_qwen3(const ModelShape& shape);

// The first family whose layers these are, for writing a config.json. Throws Error(kBadInput).
const Family& family_with(const ModelShape& shape);

// "'qwen3', 'qwen2' or 'llama'": the model types that the loader reads.
std::string loadable_families();

// The values of rope_type that the loader takes for `family`: "'default', 'linear' or 'llama3'".
std::string_view rope_types(const Family& family);

// A tensor's name in a checkpoint of `family`; `name` is its name in tensor_table().
std::string name_in(const Family& family, std::string_view name);

// The uncovered part to which a tensor of this name belongs; empty if the decoder computes with it.
std::string_view uncovered_part(const Family& family, std::string_view tensor);

}  // namespace mkbench
