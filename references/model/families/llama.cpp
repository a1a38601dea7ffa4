// Llama, and what is published under its model_type (SmolLM2), after transformers'
// LlamaForCausalLM. Mistral without a window is the same decoder; its class takes a missing
// sliding_window for 4096, and missing num_key_value_heads for 8.
#include "references/model/family.h"

namespace mkbench {
namespace {

constexpr std::string_view kLlamaUnsupported[] = {"attention_bias", "mlp_bias"};

}  // namespace

extern constinit const Family kLlamaFamily{.model_type = "llama",
                                           .architecture = "LlamaForCausalLM",
                                           .scales_rope = true,
                                           .may_omit_tie = true,
                                           .may_omit_head_dim = true,
                                           .may_omit_kv_heads = true,
                                           .unsupported_keys = kLlamaUnsupported};

extern constinit const Family kMistralFamily{.model_type = "mistral",
                                             .architecture = "MistralForCausalLM",
                                             .scales_rope = true,
                                             .may_omit_tie = true,
                                             .may_omit_head_dim = true,
                                             .null_key = "sliding_window"};

}  // namespace mkbench
