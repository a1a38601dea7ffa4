#include "references/oracle.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "references/base/error.h"
#include "references/base/parallel.h"
#include "references/model/rope.h"
#include "references/vector_steps.h"

// One function per step of the forward pass. All arithmetic is fp32. dot() adds kLanes interleaved
// sums, which keeps the rounding error of long products small and lets compilers vectorise.

namespace mkbench {
namespace {

constexpr int kLanes = 16;
// Fewest multiply-adds that are split over threads: below, starting a thread takes longer than the
// sum.
constexpr int64_t kWorthThreads = 1 << 20;

// Halves the lanes until one is left, so that every sum has one fixed order.
float fold(float (&lanes)[kLanes]) {
  for (int width = kLanes / 2; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) lanes[i] += lanes[i + width];
  }
  return lanes[0];
}

// Operands of dot products are fp32 or bf16.
float widen(float x) { return x; }
float widen(Bf16 x) { return to_float(x); }

template <class A>
float dot(const A* a, const float* b, int n) {
  float lanes[kLanes] = {};
  int i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int j = 0; j < kLanes; ++j) lanes[j] += widen(a[i + j]) * b[i + j];
  }
  for (int j = 0; i < n; ++i, ++j) lanes[j] += widen(a[i]) * b[i];
  return fold(lanes);
}

// out[r] = w[r] . x
std::vector<float> matvec(const Matrix& w, const std::vector<float>& x, int threads) {
  std::vector<float> out(static_cast<size_t>(w.rows));
  const bool worth = static_cast<int64_t>(w.size()) >= kWorthThreads;
  parallel_chunks(w.rows, std::max(1, w.rows / 32), worth ? threads : 1,
                  [&](int64_t begin, int64_t end) {
                    for (int r = static_cast<int>(begin); r < end; ++r) {
                      out[static_cast<size_t>(r)] = dot(w.row(r).data(), x.data(), w.cols);
                    }
                  });
  return out;
}

// out = (weight + offset) * x / sqrt(mean(x^2) + eps); out may be x.
void rms_norm(const float* x, const Matrix& weight, const ModelConfig& config, float* out) {
  const int n = weight.cols;
  const float mean = dot(x, x, n) / static_cast<float>(n);
  const float scale = 1.0f / std::sqrt(mean + static_cast<float>(config.rms_norm_eps));
  const auto offset = static_cast<float>(config.shape.norm_offset);
  for (int i = 0; i < n; ++i) out[i] = (to_float(weight.data[i]) + offset) * (x[i] * scale);
}

std::vector<float> rms_norm(const std::vector<float>& x, const Matrix& weight,
                            const ModelConfig& config) {
  std::vector<float> out(x.size());
  rms_norm(x.data(), weight, config, out.data());
  return out;
}

// Rotates the pairs (i, i + dim/2) of one head by inv_freq[i] * position.
void rope(float* head, const std::vector<float>& inv_freq, int position) {
  const size_t half = inv_freq.size();
  for (size_t i = 0; i < half; ++i) {
    const float angle = inv_freq[i] * static_cast<float>(position);
    const float c = std::cos(angle), s = std::sin(angle);
    const float low = head[i], high = head[i + half];
    head[i] = low * c - high * s;
    head[i + half] = high * c + low * s;
  }
}

void softmax(std::vector<float>& scores) {
  const float top = *std::max_element(scores.begin(), scores.end());
  float sum = 0;
  for (float& s : scores) {
    s = std::exp(s - top);
    sum += s;
  }
  for (float& s : scores) s /= sum;
}

// One query head over `rows` positions; `k` and `v` point at this head's slice of position 0.
void attend(const float* query, const float* k, const float* v, int stride, int rows, int dim,
            float* out) {
  const float scale = 1.0f / std::sqrt(static_cast<float>(dim));
  std::vector<float> p(static_cast<size_t>(rows));
  for (size_t t = 0; t < p.size(); ++t) {
    p[t] = dot(k + t * static_cast<size_t>(stride), query, dim) * scale;
  }
  softmax(p);
  std::fill_n(out, dim, 0.0f);
  for (size_t t = 0; t < p.size(); ++t) {
    const float* row = v + t * static_cast<size_t>(stride);
    for (int i = 0; i < dim; ++i) out[i] += p[t] * row[i];
  }
}

float activate(Activation activation, float x) {
  if (activation == Activation::kSilu) return x / (1.0f + std::exp(-x));
  const float inner = 0.79788456f * (x + 0.044715f * x * x * x);  // sqrt(2 / pi)
  return 0.5f * x * (1.0f + std::tanh(inner));
}

void add(std::vector<float>& sum, const Matrix& bias) {
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += to_float(bias.data[i]);
}

void add(std::vector<float>& residual, const std::vector<float>& x) {
  for (size_t i = 0; i < x.size(); ++i) residual[i] += x[i];
}

// down(activation(gate(x)) * up(x))
std::vector<float> mlp(const LayerWeights& w, Activation activation, const std::vector<float>& x,
                       int threads) {
  std::vector<float> gate = matvec(w.gate_proj, x, threads);
  const std::vector<float> up = matvec(w.up_proj, x, threads);
  for (size_t i = 0; i < gate.size(); ++i) gate[i] = activate(activation, gate[i]) * up[i];
  return matvec(w.down_proj, gate, threads);
}

}  // namespace

Oracle::Oracle(ModelWeights weights, int threads)
    : weights_(std::move(weights)), threads_(thread_count(threads)) {
  const ModelConfig& config = weights_.config;
  inv_freq_ = inverse_frequencies(config.rope, config.shape.head_dim);
  reset();
}

void Oracle::reset() {
  const size_t layers = static_cast<size_t>(weights_.config.shape.layers);
  position_ = 0;
  k_.assign(layers, {});
  v_.assign(layers, {});
  hidden_.assign(layers, {});
}

// Appends this position's K and V row, then computes the attention output of all query heads,
// [q_width].
std::vector<float> Oracle::attention(int layer, const std::vector<float>& x) {
  const ModelShape& s = weights_.config.shape;
  const LayerWeights& w = weights_.layers[static_cast<size_t>(layer)];
  std::vector<float> q = matvec(w.q_proj, x, threads_), k = matvec(w.k_proj, x, threads_),
                     v = matvec(w.v_proj, x, threads_);
  if (s.qkv_bias) {
    add(q, w.q_bias);
    add(k, w.k_bias);
    add(v, w.v_bias);
  }
  const auto prepare = [&](std::vector<float>& heads, const Matrix& norm) {
    for (float* head = heads.data(); head != heads.data() + heads.size(); head += s.head_dim) {
      if (s.qk_norm) rms_norm(head, norm, weights_.config, head);
      rope(head, inv_freq_, position_);
    }
  };
  prepare(q, w.q_norm);
  prepare(k, w.k_norm);
  std::vector<float>& all_k = k_[static_cast<size_t>(layer)];
  std::vector<float>& all_v = v_[static_cast<size_t>(layer)];
  all_k.insert(all_k.end(), k.begin(), k.end());
  all_v.insert(all_v.end(), v.begin(), v.end());

  const int rows = position_ + 1;
  std::vector<float> mixed(q.size());
  const bool worth = int64_t{2} * rows * s.q_width() >= kWorthThreads;
  parallel_chunks(s.heads, 1, worth ? threads_ : 1, [&](int64_t h, int64_t) {
    const int64_t kv = h / s.gqa_group() * s.head_dim;
    attend(q.data() + h * s.head_dim, all_k.data() + kv, all_v.data() + kv, s.kv_width(), rows,
           s.head_dim, mixed.data() + h * s.head_dim);
  });
  return mixed;
}

std::vector<float> Oracle::step(int32_t id, bool want_logits) {
  const ModelConfig& config = weights_.config;
  if (id < 0 || id >= config.shape.vocab) {
    throw Error(ErrorKind::kBadInput, "oracle: id " + std::to_string(id) + ", wanted 0 to " +
                                          std::to_string(config.shape.vocab - 1));
  }
  const auto multiplier = static_cast<float>(config.shape.embedding_multiplier);
  std::vector<float> h;
  for (Bf16 x : weights_.embed_tokens.row(id)) h.push_back(to_float(x) * multiplier);
  return forward(std::move(h), want_logits);
}

std::vector<float> Oracle::step(std::span<const Bf16> vector, bool want_logits) {
  const int hidden = weights_.config.shape.hidden;
  if (vector.size() != static_cast<size_t>(hidden)) {
    throw Error(ErrorKind::kBadInput, "oracle: a vector of " + std::to_string(vector.size()) +
                                          " values, wanted " + std::to_string(hidden));
  }
  check_vector_steps("oracle", 1, {.in = vector.data()}, hidden, position_);
  std::vector<float> h(vector.size());
  std::transform(vector.begin(), vector.end(), h.begin(), to_float);
  return forward(std::move(h), want_logits);
}

// The rest of a step, from the embedded vector on.
std::vector<float> Oracle::forward(std::vector<float> h, bool want_logits) {
  const ModelConfig& config = weights_.config;
  check_room();
  for (int layer = 0; layer < config.shape.layers; ++layer) {
    const LayerWeights& w = weights_.layers[static_cast<size_t>(layer)];
    const std::vector<float> x = rms_norm(h, w.input_layernorm, config);
    add(h, matvec(w.o_proj, attention(layer, x), threads_));
    const std::vector<float> y = rms_norm(h, w.post_attention_layernorm, config);
    add(h, mlp(w, config.shape.activation, y, threads_));
    hidden_[static_cast<size_t>(layer)] = h;
  }
  ++position_;
  if (!want_logits) return {};
  return matvec(weights_.lm_head, final_hidden(), threads_);
}

void Oracle::check_room() const {
  if (position_ < weights_.config.max_positions) return;
  throw Error(ErrorKind::kBadInput, "oracle: position " + std::to_string(position_) +
                                        ", wanted below max_position_embeddings " +
                                        std::to_string(weights_.config.max_positions));
}

std::vector<float> Oracle::final_hidden() const {
  if (hidden_.back().empty()) return {};
  return rms_norm(hidden_.back(), weights_.final_norm, weights_.config);
}

std::vector<float> Oracle::kv_row(int layer, int position) const {
  const int layers = weights_.config.shape.layers;
  if (layer < 0 || layer >= layers || position < 0 || position >= position_) {
    throw Error(ErrorKind::kBadInput, "oracle: kv_row(" + std::to_string(layer) + ", " +
                                          std::to_string(position) + "), wanted a layer below " +
                                          std::to_string(layers) + " and a position below " +
                                          std::to_string(position_));
  }
  const int64_t width = weights_.config.shape.kv_width();
  std::vector<float> out;
  for (const auto* cache : {&k_, &v_}) {
    const auto first = (*cache)[static_cast<size_t>(layer)].begin() + position * width;
    out.insert(out.end(), first, first + width);
  }
  return out;
}

int32_t argmax_lowest(std::span<const float> values) {
  int32_t best = -1;
  for (size_t i = 0; i < values.size(); ++i) {
    if (std::isnan(values[i])) return -1;
    if (best < 0 || values[i] > values[static_cast<size_t>(best)]) best = static_cast<int32_t>(i);
  }
  return best;
}

}  // namespace mkbench
