#include "baselines/eager_model.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <utility>
#include <vector>

#include "references/model/rope.h"
#include "references/shared_snapshot.h"

namespace mkbench {
namespace {

using at::Tensor;

// Computes mean square and scaling in fp32, rounds to the weight's dtype, multiplies, and rounds to
// the model's dtype.
Tensor rms_norm(const Tensor& x, const Tensor& weight, double eps) {
  const Tensor wide = x.to(at::kFloat);
  const Tensor variance = wide.pow(2).mean(-1, /*keepdim=*/true);
  const Tensor scaled = (wide * at::rsqrt(variance + eps)).to(weight.scalar_type());
  return (weight * scaled).to(x.scalar_type());
}

Tensor rotate_half(const Tensor& x) {
  const int64_t half = x.size(-1) / 2;
  return at::cat({-x.narrow(-1, half, half), x.narrow(-1, 0, half)}, -1);
}

// [1, kv_heads, rows, head_dim] -> [1, kv_heads * group, rows, head_dim], each kv head `group`
// times in a row.
Tensor repeat_kv(const Tensor& x, int64_t group) {
  if (group == 1) return x;
  const int64_t kv_heads = x.size(1), rows = x.size(2), dim = x.size(3);
  return x.unsqueeze(2)
      .expand({1, kv_heads, group, rows, dim})
      .reshape({1, kv_heads * group, rows, dim});
}

// x times a bf16 matrix in x's precision. The fp32 truth widens one matrix at a time, which takes
// half of the memory of weights kept in fp32 and gives the same bits.
Tensor apply_matrix(const Tensor& x, const Tensor& matrix, const Tensor& bias = {}) {
  return at::linear(x, matrix.to(x.scalar_type()), bias);
}

Tensor mlp(const ModelTensors& model, const LayerTensors& layer, const Tensor& x) {
  const Tensor gate = model.activate(apply_matrix(x, layer.gate_proj));
  return apply_matrix(gate * apply_matrix(x, layer.up_proj), layer.down_proj);
}

// Concatenates matrices of equal width by rows, and makes them views of the copy.
Tensor in_one_piece(std::initializer_list<Tensor*> parts) {
  std::vector<Tensor> all;
  for (const Tensor* part : parts) all.push_back(*part);
  const Tensor whole = at::cat(all);
  int64_t row = 0;
  for (Tensor* part : parts) {
    *part = whole.narrow(0, row, part->size(0));
    row += part->size(0);
  }
  return whole;
}

// A checksum that depends on positions and not on the order of addition: every 64-bit word is
// multiplied by an odd weight of its own, so that no single change can cancel, and integers give
// the same sum in any order.
Tensor weighted_sum(const Tensor& rows, const Tensor& weights) {
  return (rows.view(at::kLong) * weights).sum();
}

}  // namespace

Tensor ModelTensors::scaled(const Tensor& rows) const {
  if (shape.embedding_multiplier == 1) return rows;
  const auto multiplier = static_cast<float>(shape.embedding_multiplier);
  return rows * (real.dtype() == at::kFloat ? multiplier : round_to_bf16(multiplier));
}

Tensor ModelTensors::activate(const Tensor& gate) const {
  return shape.activation == Activation::kSilu ? at::silu(gate) : at::gelu(gate, "tanh");
}

EagerModel::EagerModel(const ModelWeights& w, const EagerOptions& o)
    : weights_(w), options_(o), drops_newest_row_(o.fault == PlantedFault::kCacheLength) {
  shape = w.config.shape;
  eps = w.config.rms_norm_eps;
  scaling = std::pow(shape.head_dim, -0.5);
  const at::Device device =
      o.cuda ? at::Device(at::kCUDA, static_cast<at::DeviceIndex>(o.gpu)) : at::Device(at::kCPU);
  real = at::TensorOptions().dtype(o.fp32 ? at::kFloat : at::kBFloat16).device(device);
  embed = load(w.embed_tokens, false);
  final_norm = load_norm(w.final_norm);
  lm_head = w.lm_head.data == w.embed_tokens.data ? embed : load(w.lm_head, false);
  if (o.head_fp32) lm_head = lm_head.to(at::kFloat);
  for (const LayerWeights& layer : w.layers) layers.push_back(load_layer(layer));

  // 1 / theta ** (2i / head_dim) in this order of operations, in fp32 and always on the CPU: pow
  // differs between devices.
  const Rope rope = effective_rope(w.config.rope, o.fault);
  const Tensor exponent = at::arange(0, shape.head_dim, 2, at::kFloat) / shape.head_dim;
  const Tensor frequencies = at::reciprocal(at::pow(rope.theta, exponent));
  scale_frequencies(
      rope, {frequencies.mutable_data_ptr<float>(), static_cast<size_t>(frequencies.numel())});
  inv_freq = frequencies.to(device);
}

// Matrices stay bf16, vectors get the model's dtype. On a CPU a bf16 result aliases aligned `m`.
Tensor EagerModel::load(const Matrix& m, bool is_vector) const {
  const std::vector<int64_t> sizes =
      is_vector ? std::vector<int64_t>{m.cols} : std::vector<int64_t>{m.rows, m.cols};
  const Tensor view = at::from_blob(const_cast<Bf16*>(m.data), sizes, at::kBFloat16);
  const at::Device device = real.device();
  if (options_.cuda) return is_vector ? view.to(device).to(real.dtype()) : view.to(device);
  const bool aligned = reinterpret_cast<uintptr_t>(m.data) % kAliasAlignment == 0;
  const Tensor own = aligned ? view : view.clone();
  return is_vector ? own.to(real.dtype()) : own;
}

Tensor EagerModel::load_norm(const Matrix& m) const {
  const Tensor weight = load(m, true);
  return shape.norm_offset == 0 ? weight : weight.to(at::kFloat) + shape.norm_offset;
}

LayerTensors EagerModel::load_layer(const LayerWeights& w) const {
  LayerTensors layer;
  layer.input_norm = load_norm(w.input_layernorm);
  layer.post_attention_norm = load_norm(w.post_attention_layernorm);
  layer.q_proj = load(w.q_proj, false);
  layer.k_proj = load(w.k_proj, false);
  layer.v_proj = load(w.v_proj, false);
  layer.o_proj = load(w.o_proj, false);
  if (shape.qk_norm) {
    layer.q_norm = load_norm(w.q_norm);
    layer.k_norm = load_norm(w.k_norm);
  }
  if (shape.qkv_bias)
    layer.qkv_bias = at::cat({load(w.q_bias, true), load(w.k_bias, true), load(w.v_bias, true)});
  layer.gate_proj = load(w.gate_proj, false);
  layer.up_proj = load(w.up_proj, false);
  layer.down_proj = load(w.down_proj, false);
  if (options_.fault == PlantedFault::kSwapGateUp) std::swap(layer.gate_proj, layer.up_proj);
  if (options_.static_steps()) {
    layer.qkv_proj = in_one_piece({&layer.q_proj, &layer.k_proj, &layer.v_proj});
    layer.gate_up_proj = in_one_piece({&layer.gate_proj, &layer.up_proj});
  }
  layer.k_cache = at::full({1, shape.kv_heads, options_.max_context, shape.head_dim},
                           unwritten_row(options_), real);
  layer.v_cache = layer.k_cache.clone();
  return layer;
}

EagerModel::Rotary EagerModel::rotary(int64_t first, int64_t rows) const {
  const Tensor positions = at::arange(first, first + rows, real.dtype(at::kFloat));
  const Tensor angles = positions.view({1, rows, 1}) * inv_freq;
  const Tensor both = at::cat({angles, angles}, -1);
  return {both.cos().to(real.dtype()).unsqueeze(1), both.sin().to(real.dtype()).unsqueeze(1)};
}

Tensor EagerModel::Rotary::apply(const Tensor& x) const {
  return (x * cos) + (rotate_half(x) * sin);
}

// [1, 1, rows, first + rows]: 0 where a row attends, the lowest finite value where it must not. The
// tensor is undefined for a single row, which attends to all rows that it is given.
Tensor EagerModel::causal_mask(int64_t first, int64_t rows) const {
  if (rows == 1) return {};
  const Tensor blocked = at::full({rows, first + rows}, masked_score(), real);
  const Tensor mask = blocked.triu(drops_newest_row_ ? first : first + 1);
  if (drops_newest_row_ && first == 0) mask.select(0, 0).select(0, 0).zero_();
  return mask.view({1, 1, rows, first + rows});
}

// x [1, rows, hidden] after the input norm, `first` KV rows before them -> [1, rows, hidden] for
// the residual add.
Tensor EagerModel::attention(LayerTensors& layer, const Tensor& x, int64_t first, const Rotary& r,
                             const Tensor& mask) const {
  const int64_t rows = x.size(1), dim = shape.head_dim;
  // [1, rows, width] -> [1, rows, heads, head_dim]; `first_bias` is the row of the matrix in qkv.
  const auto project = [&](const Tensor& matrix, int64_t first_bias, int64_t heads) {
    Tensor bias;
    if (layer.qkv_bias.defined()) bias = layer.qkv_bias.narrow(0, first_bias, heads * dim);
    return apply_matrix(x, matrix, bias).view({1, rows, heads, dim});
  };
  // The QK-norms work per head, before RoPE.
  const auto prepare = [&](const Tensor& heads, const Tensor& norm) {
    return r.apply((norm.defined() ? rms_norm(heads, norm, eps) : heads).transpose(1, 2));
  };
  const int64_t q_width = shape.q_width(), kv_width = shape.kv_width();
  const Tensor query = prepare(project(layer.q_proj, 0, shape.heads), layer.q_norm);
  const Tensor key = prepare(project(layer.k_proj, q_width, shape.kv_heads), layer.k_norm);
  const Tensor v = project(layer.v_proj, q_width + kv_width, shape.kv_heads);
  layer.k_cache.narrow(2, first, rows).copy_(key);
  layer.v_cache.narrow(2, first, rows).copy_(v.transpose(1, 2));

  int64_t seen = first + rows;
  if (drops_newest_row_ && rows == 1) seen = std::max<int64_t>(1, seen - 1);
  const Tensor keys = repeat_kv(layer.k_cache.narrow(2, 0, seen), shape.gqa_group());
  const Tensor values = repeat_kv(layer.v_cache.narrow(2, 0, seen), shape.gqa_group());
  Tensor scores = at::matmul(query, keys.transpose(2, 3)) * scaling;
  if (mask.defined()) scores = scores + mask;
  const Tensor probabilities = at::softmax(scores, -1, at::kFloat).to(query.scalar_type());
  const Tensor mixed = at::matmul(probabilities, values).transpose(1, 2).contiguous();
  return apply_matrix(mixed.reshape({1, rows, shape.q_width()}), layer.o_proj);
}

Tensor EagerModel::forward(const Tensor& ids, bool keep_hidden) {
  return forward_vectors(scaled(at::embedding(embed, ids).to(real.dtype())), keep_hidden);
}

Tensor EagerModel::forward_vectors(const Tensor& vectors, bool keep_hidden) {
  const int64_t first = position_, rows = vectors.size(1);
  Tensor h = vectors;
  const Rotary r = rotary(first, rows);
  const Tensor mask = causal_mask(first, rows);
  hidden_states.clear();
  for (size_t l = 0; l < layers.size(); ++l) {
    layer_ = static_cast<int>(l);
    LayerTensors& layer = layers[l];
    const Tensor x = rms_norm(h, layer.input_norm, eps);
    h = h + attention(layer, x, first, r, mask);
    h = h + mlp(*this, layer, rms_norm(h, layer.post_attention_norm, eps));
    if (keep_hidden) hidden_states.push_back(h);  // shares h's memory, no copy
  }
  position_ = static_cast<int>(first + rows);
  layer_ = -1;
  return h;
}

Tensor EagerModel::normed(const Tensor& hidden) const { return rms_norm(hidden, final_norm, eps); }

Tensor EagerModel::head(const Tensor& hidden) const {
  Tensor x = normed(hidden);
  if (options_.head_fp32) x = x.to(at::kFloat);
  return apply_matrix(x, lm_head).view({shape.vocab});
}

uint64_t EagerModel::kv_checksum(int rows) const {
  uint64_t sum = 0x6d6b62656e636821u;  // the value of an empty prefix
  if (rows == 0) return sum;
  const Tensor& first = layers.front().k_cache;
  const int64_t words = shape.head_dim * first.element_size() / 8;
  const int64_t count = shape.kv_heads * int64_t{rows} * words;
  const int64_t odd_multiplier = static_cast<int64_t>(0x9E3779B97F4A7C15u);
  const Tensor weights =
      ((at::arange(count, first.options().dtype(at::kLong)) * 2 + 1) * odd_multiplier)
          .view({1, shape.kv_heads, rows, words});
  std::vector<Tensor> sums;
  for (const LayerTensors& layer : layers) {
    for (const Tensor& cache : {layer.k_cache, layer.v_cache})
      sums.push_back(weighted_sum(cache.narrow(2, 0, rows), weights));
  }
  const Tensor host = at::stack(sums).to(at::kCPU);
  for (int64_t i = 0; i < host.numel(); ++i) {
    sum = (sum ^ static_cast<uint64_t>(host.const_data_ptr<int64_t>()[i])) * 0x9E3779B97F4A7C15u;
    sum ^= sum >> 29;  // without this, the order of layers would only change the upper bits
  }
  return sum;
}

double unwritten_row(const EagerOptions& options) {
  return options.static_steps() ? 0 : std::numeric_limits<double>::quiet_NaN();
}

}  // namespace mkbench
