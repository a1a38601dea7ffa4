// Models with seeded random weights of any shape, built in memory: for engine tests that need odd
// dimensions.
#pragma once

#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "references/model/weights.h"
#include "references/synthetic.h"

namespace mkbench::testing {

// A shape of which no dimension divides another: heads of 10, 3 query heads a kv head, widths that
// leave a tail in every inner loop.
inline constexpr ModelShape kOdd{.hidden = 20,
                                 .intermediate = 36,
                                 .layers = 3,
                                 .heads = 6,
                                 .kv_heads = 2,
                                 .head_dim = 10,
                                 .vocab = 97};

// A standard normal value for entry `index` of stream `seed`, by Box-Muller.
inline float normal_at(uint64_t seed, uint64_t index) {
  const uint64_t a = splitmix64(seed ^ splitmix64(2 * index));
  const uint64_t b = splitmix64(seed ^ splitmix64(2 * index + 1));
  const double u = (static_cast<double>(a >> 11) + 0.5) * 0x1p-53;
  const double v = static_cast<double>(b >> 11) * 0x1p-53;
  return static_cast<float>(std::sqrt(-2 * std::log(u)) * std::cos(6.283185307179586 * v));
}

struct RandomModelOptions {
  double rope_theta = 1e6;
  bool tied = true;
  int max_positions = 512;
  uint64_t seed = 1;
};

// Layers with every part that a ModelShape can ask for and no family of this tree has.
inline ModelShape with_other_steps(ModelShape shape) {
  shape.norm_offset = 1;
  shape.activation = Activation::kGeluTanh;
  shape.embedding_multiplier = 1.7;
  return shape;
}

// Matrices are normal with deviation 1 / sqrt(cols), norms 1 + 0.1 * normal with their offset, biases
// 0.3 * normal, the embedding normal with deviation 1. Every part of a layer then moves the residual
// stream by a similar amount, so an error in any part shows in the logits.
inline ModelWeights random_model(const ModelShape& shape, const RandomModelOptions& options = {}) {
  ModelWeights w;
  w.name = "random";
  w.config = {.shape = shape,
              .rope = {.theta = options.rope_theta, .theta_key = "rope_theta"},
              .rms_norm_eps = 1e-6,
              .tie_word_embeddings = options.tied,
              .max_positions = options.max_positions};
  w.layers.resize(static_cast<size_t>(shape.layers));
  auto storage = std::make_shared<std::vector<std::vector<Bf16>>>();
  uint64_t stream = options.seed;
  for (const NamedTensor& t : tensor_table(w.config)) {
    if (t.name == "lm_head.weight" && options.tied) continue;
    stream = splitmix64(stream);
    std::vector<Bf16> values(static_cast<size_t>(t.rows) * static_cast<size_t>(t.cols));
    const bool embedding = t.name == "model.embed_tokens.weight";
    const bool bias = t.name.ends_with(".bias"), norm = t.is_vector && !bias;
    const float scale = bias ? 0.3f : norm ? 0.1f : embedding ? 1.0f : 1 / std::sqrt(float(t.cols));
    for (size_t i = 0; i < values.size(); ++i) {
      const float mean = norm ? 1 - static_cast<float>(shape.norm_offset) : 0;
      values[i] = to_bf16(mean + scale * normal_at(stream, i));
    }
    storage->push_back(std::move(values));
    tensor_of(w, t) = {.data = storage->back().data(), .rows = t.rows, .cols = t.cols};
  }
  if (options.tied) w.lm_head = w.embed_tokens;
  w.owner = storage;
  w.sha256 = hash_weights(w);
  return w;
}

// Of kOdd, for tests that only pass weights on.
inline const ModelWeights& odd_weights() {
  static const ModelWeights weights = random_model(kOdd);
  return weights;
}

}  // namespace mkbench::testing
