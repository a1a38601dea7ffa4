// What differs between dense decoders: dimensions, RoPE, norms, biases. Loader, truth and engines
// read it; each file of families/ says what its models set.
#pragma once

#include <string>
#include <string_view>

#include "references/model/shape.h"

namespace mkbench {

// How the rotary frequencies of a model are scaled, after transformers' rope_type of that name.
enum class RopeScaling { kNone, kLinear, kLlama3 };
constexpr std::string_view rope_type(RopeScaling scaling) {
  constexpr std::string_view kNames[] = {"default", "linear", "llama3"};
  return kNames[static_cast<size_t>(scaling)];
}

// hidden_act of a config.json.
constexpr std::string_view activation_name(Activation activation) {
  constexpr std::string_view kNames[] = {"silu", "gelu_pytorch_tanh"};
  return kNames[static_cast<size_t>(activation)];
}

struct Rope {
  double theta = 0;         // as written in the file; > 0
  std::string theta_key{};  // which key it came from, e.g. "rope_parameters.rope_theta"
  RopeScaling scaling = RopeScaling::kNone;
  double factor = 1;  // > 0; by which frequencies are divided
  // llama3 alone: frequencies whose wave is longer than original_positions / low_freq_factor are
  // divided by `factor`, those shorter than original_positions / high_freq_factor stay, and those in
  // between are mixed.
  double low_freq_factor = 0, high_freq_factor = 0;
  int original_positions = 0;

  bool same_angles(const Rope& o) const {
    return theta == o.theta && scaling == o.scaling && factor == o.factor &&
           low_freq_factor == o.low_freq_factor && high_freq_factor == o.high_freq_factor &&
           original_positions == o.original_positions;
  }
};

// Everything about a model that is not a weight. All of it comes from its config.json and its
// family; nothing is guessed.
struct ModelConfig {
  ModelShape shape{};
  Rope rope{};
  double rms_norm_eps = 0;  // > 0
  bool tie_word_embeddings = false;
  int max_positions = 0;  // longest context, in positions
  // Bytes of the tensors as stored, of a model that only transformers computes (outline.h); else 0.
  int64_t outline_bytes = 0;
  bool routes = false;  // of such a model: a router chooses among experts

  bool is_outline() const { return outline_bytes > 0; }
  // Bytes of all weights: as stored, or as bf16.
  int64_t weight_bytes() const {
    return is_outline() ? outline_bytes : 2 * shape.parameters(tie_word_embeddings);
  }
};

}  // namespace mkbench
