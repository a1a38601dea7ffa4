// Qwen2 and Qwen2.5, after transformers' Qwen2ForCausalLM: a bias on each of q, k and v, which no
// key of config.json names, and none on o. The class takes missing num_key_value_heads for 32.
#include "references/model/family.h"

namespace mkbench {
namespace {

constexpr std::string_view kQwen2Unsupported[] = {"use_sliding_window"};

}  // namespace

extern constinit const Family kQwen2Family{.model_type = "qwen2",
                                           .architecture = "Qwen2ForCausalLM",
                                           .qkv_bias = true,
                                           .scales_rope = true,
                                           .may_omit_tie = true,
                                           .may_omit_head_dim = true,
                                           .unsupported_keys = kQwen2Unsupported};

}  // namespace mkbench
