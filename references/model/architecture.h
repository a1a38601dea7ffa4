// What differs between dense decoders: dimensions, RoPE, norms, biases. Loader, truth and engines
// read it; each file of families/ says what its models set.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

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

// What a decode step reads of a model that only transformers computes (baselines/step_reads.py).
struct StepReads {
  struct Rows {
    int64_t bytes = 0;  // of a position's keys and values in some of the layers
    int most = 0;       // positions that these layers read; 0: all
  };
  int64_t fixed = 0;  // bytes of parameters, and of states that do not grow
  std::vector<Rows> rows{};
  std::string unknown{};  // why it is not known

  bool known() const { return fixed > 0; }
  // At context length `depth` (KV rows before the step).
  int64_t bytes(double depth) const {
    double sum = static_cast<double>(fixed);
    for (const Rows& r : rows)
      sum += static_cast<double>(r.bytes) * (r.most > 0 ? std::min<double>(depth, r.most) : depth);
    return static_cast<int64_t>(sum);
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
  int64_t outline_values = 0;  // that transformers makes of them
  bool routes = false;         // of such a model: a router chooses among experts
  StepReads reads{};           // of such a model, once it was looked for

  bool is_outline() const { return outline_bytes > 0; }
  // Bytes of all weights: as stored, or as bf16.
  int64_t weight_bytes() const {
    return is_outline() ? outline_bytes : 2 * shape.parameters(tie_word_embeddings);
  }
  // Bytes that one decode step must read at context length `depth`.
  int64_t bytes_per_step(double depth) const {
    return reads.known() ? reads.bytes(depth) : shape.bytes_per_step(depth);
  }
};

}  // namespace mkbench
