// Qwen3 dense, after transformers' Qwen3ForCausalLM: an RMSNorm over each query and key head.
#include "references/model/family.h"

namespace mkbench {
namespace {

constexpr std::string_view kQwen3Unsupported[] = {"attention_bias", "use_sliding_window"};

}  // namespace

constinit const Family kQwen3Family{.model_type = "qwen3",
                                    .architecture = "Qwen3ForCausalLM",
                                    .qk_norm = true,
                                    .unsupported_keys = kQwen3Unsupported};

}  // namespace mkbench
