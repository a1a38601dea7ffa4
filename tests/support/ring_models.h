// Models that the ring megakernel's tests share: random weights of its layer shape, cut to what a
// test needs.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "kernels/ring/megakernel.h"
#include "tests/support/oracle_comparison.h"
#include "tests/support/random_model.h"

namespace mkbench::testing {

// Random weights, fp32 activations, KV rows in bf16.
inline constexpr Limits kRingLimits{0.015, 0.005, 0.05};

inline bool no_ring_gpu() {
  int count = 0, major = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) return true;
  return cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0) != cudaSuccess ||
         major < 9;
}

// A copy of `w` whose tensor `member` of every layer is edited; the copy owns the new values.
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
  using Both = std::pair<std::shared_ptr<const void>, decltype(storage)>;
  w.owner = std::make_shared<Both>(w.owner, storage);
  return w;
}

// An untied head of `rows` rows.
inline ModelWeights with_head(ModelWeights w, std::vector<Bf16> rows) {
  auto storage = std::make_shared<std::vector<Bf16>>(std::move(rows));
  w.config.tie_word_embeddings = false;
  w.lm_head = {storage->data(), w.config.shape.vocab, w.config.shape.hidden};
  using Both = std::pair<std::shared_ptr<const void>, decltype(storage)>;
  w.owner = std::make_shared<Both>(w.owner, storage);
  return w;
}

// Other values in the embedding, which `w` does not share with its head.
inline ModelWeights with_embedding(ModelWeights w, std::vector<Bf16> rows) {
  auto storage = std::make_shared<std::vector<Bf16>>(std::move(rows));
  w.embed_tokens.data = storage->data();
  using Both = std::pair<std::shared_ptr<const void>, decltype(storage)>;
  w.owner = std::make_shared<Both>(w.owner, storage);
  return w;
}

// The first rows of embedding and head.
inline ModelWeights with_vocab(ModelWeights w, int vocab) {
  w.config.shape.vocab = w.embed_tokens.rows = w.lm_head.rows = vocab;
  return w;
}

// `vocab` rows of embedding and head, made from those that are there: every further round of them
// is rotated by one column more, so that no two rows are equal.
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

inline ModelWeights with_layers(ModelWeights w, int layers) {
  w.config.shape.layers = layers;
  w.layers.resize(static_cast<size_t>(layers));
  return w;
}

// q_norm times `sharpness`, and by halves of the rotated pairs q times and k over `contrast`, or
// the other way round. Scores are those of contrast 1, but |q| |k| grows with its square: the
// distance between a score and its bound is made to measure.
inline ModelWeights with_contrast(const ModelWeights& w, float sharpness, float contrast) {
  const auto first = [](int d) { return d % 64 < 32; };
  const ModelWeights q = with_layers_edited(w, &LayerWeights::q_norm, [&](int, int d, float x) {
    return x * sharpness * (first(d) ? contrast : 1 / contrast);
  });
  return with_layers_edited(q, &LayerWeights::k_norm, [&](int, int d, float x) {
    return x * (first(d) ? 1 / contrast : contrast);
  });
}

// Four layers, 1,000 rows of vocabulary (not divisible by the blocks' shares), untied; attention
// sharp enough that a lost position shows. Made once a process.
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

// |q| max|k| exceeds every score by more than 100 in log2 units, but not by 200: the reference of
// the exponentials is set by the bound.
inline ModelWeights bound_decides(const ModelWeights& w) { return with_contrast(w, 1.0f, 2.3f); }
// By more than 200: without a maximum, everything would underflow.
inline ModelWeights bound_too_far(const ModelWeights& w) { return with_contrast(w, 1.0f, 8.0f); }

struct Run {
  std::vector<int32_t> ids;
  std::vector<float> logits;
  bool operator==(const Run&) const = default;
};

// Prompt in, n free-running tokens out, with logits.
inline Run run(Engine& e, const std::vector<int32_t>& prompt, int n, int vocab) {
  Run r;
  r.logits.resize(static_cast<size_t>(n) * static_cast<size_t>(vocab));
  e.reset();
  e.poison();
  e.prefill(prompt);
  r.ids = e.decode(n, nullptr, r.logits.data());
  return r;
}

}  // namespace mkbench::testing
