// Models for the ring megakernel's tests: random weights of its layer shape, with the layers,
// vocabulary and edits that a test needs.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "kernels/ring/megakernel.h"
#include "tests/support/card_engine.h"
#include "tests/support/oracle_comparison.h"
#include "tests/support/random_model.h"

namespace mkbench::testing {

// Limits against the oracle for random weights: the ring has fp32 activations and KV rows in bf16.
inline constexpr Limits kRingLimits{0.015, 0.005, 0.05};

inline bool no_ring_gpu() {
  int major = 0;
  return no_gpu() ||
         cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0) != cudaSuccess ||
         major < 9;
}

// `w`, which owns `storage` besides what it owned already.
inline ModelWeights owning(ModelWeights w, std::shared_ptr<const void> storage) {
  using Both = std::pair<std::shared_ptr<const void>, std::shared_ptr<const void>>;
  w.owner = std::make_shared<Both>(w.owner, std::move(storage));
  return w;
}

// A copy of `w` with tensor `member` of every layer edited. The copy owns the new values.
inline ModelWeights with_layers_edited(ModelWeights w, Matrix LayerWeights::*member,
                                       const std::function<float(int, int, float)>& edit) {
  auto storage = std::make_shared<std::vector<std::vector<Bf16>>>();
  for (size_t layer = 0; layer < w.layers.size(); ++layer) {
    Matrix& m = w.layers[layer].*member;
    std::vector<Bf16> values(m.data, m.data + m.size());
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = to_bf16(edit(static_cast<int>(layer), static_cast<int>(i), to_float(values[i])));
    }
    storage->push_back(std::move(values));
    m.data = storage->back().data();
  }
  return owning(std::move(w), storage);
}

// A copy of `w` with the values `rows` in an untied LM head.
inline ModelWeights with_head(ModelWeights w, std::vector<Bf16> rows) {
  auto storage = std::make_shared<std::vector<Bf16>>(std::move(rows));
  w.config.tie_word_embeddings = false;
  w.lm_head = {storage->data(), w.config.shape.vocab, w.config.shape.hidden};
  return owning(std::move(w), storage);
}

// A copy of `w` with other values in its embedding, which must not be tied to the LM head.
inline ModelWeights with_embedding(ModelWeights w, std::vector<Bf16> rows) {
  auto storage = std::make_shared<std::vector<Bf16>>(std::move(rows));
  w.embed_tokens.data = storage->data();
  return owning(std::move(w), storage);
}

// A copy of `w` with the first `vocab` rows of embedding and LM head.
inline ModelWeights with_vocab(ModelWeights w, int vocab) {
  w.config.shape.vocab = w.embed_tokens.rows = w.lm_head.rows = vocab;
  return w;
}

// A copy of `w` with `vocab` rows of embedding and LM head. The rows of `w` are repeated, each time
// rotated by one column more, so that no two rows are equal.
inline ModelWeights with_larger_vocab(ModelWeights w, int vocab) {
  const auto grow = [vocab](const Matrix& m) {
    const size_t rows = static_cast<size_t>(m.rows), columns = static_cast<size_t>(m.cols);
    std::vector<Bf16> values(static_cast<size_t>(vocab) * columns);
    for (size_t r = 0; r < static_cast<size_t>(vocab); ++r) {
      const Bf16* from = m.data + r % rows * columns;
      std::rotate_copy(from, from + r / rows % columns, from + columns,
                       values.begin() + static_cast<int64_t>(r * columns));
    }
    return values;
  };
  std::vector<Bf16> head = grow(w.lm_head);
  w = with_embedding(w, grow(w.embed_tokens));
  w.config.shape.vocab = w.embed_tokens.rows = vocab;
  return with_head(w, std::move(head));
}

// A copy of `w` with its first `layers` layers.
inline ModelWeights with_layers(ModelWeights w, int layers) {
  w.config.shape.layers = layers;
  w.layers.resize(static_cast<size_t>(layers));
  return w;
}

// A copy of `w` with q_norm times `sharpness`. In one half of the RoPE pairs q_norm is multiplied
// and k_norm divided by `contrast`, in the other half it is the reverse. Scores do not depend on
// `contrast`, but |q| |k| grows with its square: this sets the distance between scores and their
// bound.
inline ModelWeights with_contrast(const ModelWeights& w, float sharpness, float contrast) {
  const auto first = [](int d) { return d % 64 < 32; };
  const ModelWeights q = with_layers_edited(w, &LayerWeights::q_norm, [&](int, int d, float x) {
    return x * sharpness * (first(d) ? contrast : 1 / contrast);
  });
  return with_layers_edited(q, &LayerWeights::k_norm, [&](int, int d, float x) {
    return x * (first(d) ? 1 / contrast : contrast);
  });
}

// Four layers, a vocabulary of 1,000 rows (not divisible by the blocks' shares), untied. Attention
// is sharp enough that a lost position is noticed. Computed once a process.
inline const ModelWeights& four_layers() {
  static const ModelWeights weights = [] {
    ModelShape shape = kQwen3_0_6B;
    shape.layers = 4;
    shape.vocab = 1000;
    const ModelWeights w = random_model(shape, {.tied = false, .max_positions = 40960});
    return with_contrast(w, 2.5f, 1.0f);
  }();
  return weights;
}

// The bound |q| max|k| exceeds every score by more than 100 in log2 units but less than 200: the
// bound decides the reference R of the exponents (roles/statistics.cuh).
inline ModelWeights bound_decides(const ModelWeights& w) { return with_contrast(w, 1.0f, 2.3f); }
// The bound exceeds every score by more than 200: without the slow path's maximum, all exponentials
// would underflow.
inline ModelWeights bound_too_far(const ModelWeights& w) { return with_contrast(w, 1.0f, 8.0f); }

}  // namespace mkbench::testing
