// The trunk of Qwen3-TTS's talker, a Qwen3 whose steps read vectors. Names and keys are taken from
// the public sources of qwen-tts.
#include "references/model/family.h"

namespace mkbench {
namespace {

constexpr std::string_view kTalkerUnsupported[] = {"attention_bias", "use_sliding_window"};

constexpr UncoveredPart kTalkerUncovered[] = {
    {"talker.model.text_embedding.", "text embedding"},
    {"talker.text_projection.", "text projection"},
    {"talker.code_predictor.", "code predictor"},
    {"speaker_encoder.", "speaker encoder"},
};

}  // namespace

extern constinit const Family kTalkerFamily{
    .model_type = "qwen3_tts",
    .architecture = "Qwen3TTSForConditionalGeneration",
    .config_key = "talker_config",
    .trunk = "talker.model.",
    .embedding = "talker.model.codec_embedding.weight",
    .head = "talker.codec_head.weight",
    .input = "hidden vector (inputs_embeds): the sum of codec and text embedding rows",
    .output = "logits and the hidden vector after the final norm",
    .qk_norm = true,
    .mrope = true,
    .may_omit_tie = true,
    .unsupported_keys = kTalkerUnsupported,
    .uncovered = kTalkerUncovered,
    .beside = "speech tokenizer (codec ids to audio)"};

}  // namespace mkbench
