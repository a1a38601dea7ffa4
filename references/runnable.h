// What this binary can run, in two tables: the kinds of model that are understood, and the layer
// shapes that the megakernels are compiled for. Loader and `mkbench inspect` read both.
#pragma once

#include <array>
#include <iterator>
#include <span>
#include <string>
#include <string_view>

#include "references/shape_table.h"

namespace mkbench {

// Tensors that belong to a model and that nothing here computes with.
struct UncoveredPart {
  std::string_view prefix;  // with which the tensors' names begin
  std::string_view what;
};

// A kind of checkpoint: where its decoder's config and tensors are.
struct ModelKind {
  std::string_view model_type, architecture;
  std::string_view config_key;       // the decoder's object in config.json; empty: the whole file
  std::string_view trunk;            // prefix of tensor names, in place of Qwen3's "model."
  std::string_view embedding, head;  // tensor names
  std::string_view input, output;    // what a decode step reads and returns
  bool mrope;         // RoPE with three rows of positions, which decoding keeps equal
  bool may_omit_tie;  // config.json may lack tie_word_embeddings: then the head is untied
  std::span<const UncoveredPart> uncovered;
  std::string_view beside;  // a part of the model that is in other files; empty: none
};

inline constexpr std::string_view kTokenInput = "token id", kLogitsOutput = "logits";

inline constexpr UncoveredPart kTtsUncovered[] = {
    {"talker.model.text_embedding.", "text embedding"},
    {"talker.text_projection.", "text projection"},
    {"talker.code_predictor.", "code predictor"},
    {"speaker_encoder.", "speaker encoder"},
};

// The names and keys of qwen3_tts are taken from the public sources of qwen-tts.
inline constexpr ModelKind kModelKinds[] = {
    {.model_type = "qwen3",
     .architecture = "Qwen3ForCausalLM",
     .config_key = "",
     .trunk = "model.",
     .embedding = "model.embed_tokens.weight",
     .head = "lm_head.weight",
     .input = kTokenInput,
     .output = kLogitsOutput,
     .mrope = false,
     .may_omit_tie = false,
     .uncovered = {},
     .beside = ""},
    {.model_type = "qwen3_tts",
     .architecture = "Qwen3TTSForConditionalGeneration",
     .config_key = "talker_config",
     .trunk = "talker.model.",
     .embedding = "talker.model.codec_embedding.weight",
     .head = "talker.codec_head.weight",
     .input = "hidden vector (inputs_embeds): the sum of codec and text embedding rows",
     .output = "logits and the hidden vector after the final norm",
     .mrope = true,
     .may_omit_tie = true,
     .uncovered = kTtsUncovered,
     .beside = "speech tokenizer (codec ids to audio)"},
};

// The row of a model_type; null where it is not known.
const ModelKind* find_kind(std::string_view model_type);

// "'qwen3' or 'qwen3_tts'": the kinds that the loader reads.
std::string loadable_kinds();

// A tensor's name in a checkpoint of `kind`; `qwen3_name` is its name in tensor_table().
std::string name_in(const ModelKind& kind, std::string_view qwen3_name);

// The uncovered part to which a tensor of this name belongs; empty if the decoder computes with it.
std::string_view uncovered_part(const ModelKind& kind, std::string_view tensor);

struct CompiledShape {
  std::string_view name;
  ModelShape shape;  // layers and vocabulary are run-time values
};

// Every row of the shape table, and tiny. A test compares it with the kernels of the engine plain.
inline constexpr auto kCompiledShapes = [] {
  std::array<CompiledShape, std::size(kShapeTable) + 1> all{};
  for (size_t i = 0; i < std::size(kShapeTable); ++i)
    all[i] = {kShapeTable[i].name, kShapeTable[i].shape};
  all.back() = {"tiny", kTiny};
  return all;
}();

// The compiled shape that differs from `shape` in the fewest dimensions of a layer.
const CompiledShape& nearest_compiled(const ModelShape& shape);

}  // namespace mkbench
