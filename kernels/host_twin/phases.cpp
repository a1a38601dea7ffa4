#include "kernels/host_twin/phases.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <utility>

namespace mkbench::host_twin {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// The part of [begin, begin + size) that lies in `range`, counted from begin.
Range overlap(Range range, int begin, int size) {
  const int from = std::clamp(range.begin - begin, 0, size);
  return {from, std::clamp(range.end - begin, from, size)};
}

}  // namespace

void Phases::matvec(const Block& b, const Bf16* w, int rows, int cols, const float* x, float* y) {
  b.model->ops->matvec(w, rows, cols, x, y);
}

void Phases::project(const Block& b, const Matrix& w, Range range, const float* x, float* y,
                     const Matrix& bias) {
  matvec(b, w.row(range.begin).data(), range.size(), w.cols, x, y);
  if (bias.size() == 0) return;
  for (int i = 0; i < range.size(); ++i) y[i] += to_float(bias.data[range.begin + i]);
}

void Phases::rms_norm(const Block& b, const float* x, const Matrix& weight, float* out) {
  // Every block repeats this sum, so its latency counts: eight chains of additions instead of one.
  constexpr int kChains = 8;
  float squares[kChains] = {};
  int c = 0;
  for (; c + kChains <= weight.cols; c += kChains) {
    for (int i = 0; i < kChains; ++i) squares[i] += x[c + i] * x[c + i];
  }
  for (; c < weight.cols; ++c) squares[0] += x[c] * x[c];
  float sum = 0;
  for (const float part : squares) sum += part;
  const float scale = 1.0f / std::sqrt(sum / static_cast<float>(weight.cols) + b.model->eps);
  const auto offset = static_cast<float>(b.model->shape().norm_offset);
  for (c = 0; c < weight.cols; ++c) out[c] = x[c] * scale * (to_float(weight.data[c]) + offset);
}

void Phases::rotate(const Block& b, int position, float* head) {
  const int half = b.model->shape().head_dim / 2;
  const float* cosines = b.rope->cosines(position);
  const float* sines = b.rope->sines(position);
  for (int i = 0; i < half; ++i) {
    const float low = head[i], high = head[i + half];
    head[i] = low * cosines[i] - high * sines[i];
    head[i + half] = high * cosines[i] + low * sines[i];
  }
}

void Phases::prepare_head(const Block& b, Head kind, const float* raw, int layer, int position,
                          float* out) {
  const LayerWeights& w = b.model->weights.layers[layer];
  if (b.model->shape().qk_norm)
    rms_norm(b, raw, kind == Head::kQuery ? w.q_norm : w.k_norm, out);
  else
    std::copy_n(raw, b.model->shape().head_dim, out);
  rotate(b, position, out);
}

void Phases::write_kv_row(Block& b, int layer, int kv_head, int position) {
  const ModelShape& s = b.model->shape();
  const float* k_raw = b.shared->qkv.data() + s.q_width() + kv_head * s.head_dim;
  const float* v_raw = k_raw + s.kv_width();
  prepare_head(b, Head::kKey, k_raw, layer, position, b.local.k.data());
  Bf16* k = b.kv->k(layer, kv_head, position);
  Bf16* v = b.kv->v(layer, kv_head, position);
  for (int d = 0; d < s.head_dim; ++d) k[d] = cached(b.local.k[d]);
  for (int d = 0; d < s.head_dim; ++d) v[d] = cached(v_raw[d]);
}

void Phases::score(const Block& b, int layer, int kv_head, int from, int count, const float* q,
                   float* scores) {
  const int head_dim = b.model->shape().head_dim;
  b.model->ops->matvec(b.kv->k(layer, kv_head, from), count, head_dim, q, scores);
}

float Phases::running_maximum(float before, const float* scores, int count) {
  return std::max(before, *std::max_element(scores, scores + count));
}

void Phases::add_values(const Block& b, int layer, int kv_head, int from, int count, float* weights,
                        float* v_sums) {
  const int head_dim = b.model->shape().head_dim;
  b.model->ops->weighted_sum(b.kv->v(layer, kv_head, from), count, head_dim, weights, v_sums);
}

float Phases::exponential(float x) { return std::exp(x); }

float Phases::activate(const Block& b, float x) {
  if (b.model->shape().activation == Activation::kSilu) return x / (1.0f + exponential(-x));
  const float slope = std::sqrt(2 / std::numbers::pi_v<float>);
  return x / 2 * (1.0f + std::tanh(slope * (x + 0.044715f * x * x * x)));
}

// Attention of one query head over positions [range), as a partial. It goes through the positions
// in tiles, so that the scratch does not grow with the context.
void Phases::attend(Block& b, int layer, int kv_head, Range range, const float* q, int head,
                    int split) {
  const ModelShape& s = b.model->shape();
  SharedScratch& shared = *b.shared;
  float* scores = b.local.scores.data();
  float* v_sums = b.local.v_sums.data();
  float largest = -kInfinity, sum = 0;
  std::fill_n(v_sums, s.head_dim, 0.0f);
  for (int from = range.begin; from < range.end; from += kScoreTile) {
    const int count = std::min(kScoreTile, range.end - from);
    score(b, layer, kv_head, from, count, q, scores);
    const float before = largest;
    largest = running_maximum(before, scores, count);
    // The sums so far are relative to the old maximum.
    const float rescale = exponential(before - largest);
    sum *= rescale;
    for (int d = 0; d < s.head_dim; ++d) v_sums[d] *= rescale;
    for (int i = 0; i < count; ++i) {
      scores[i] = exponential(scores[i] - largest);
      sum += scores[i];
    }
    add_values(b, layer, kv_head, from, count, scores, v_sums);
  }
  const size_t slot = static_cast<size_t>(head) * kMaxSplits + split;
  shared.partial_max[slot] = largest;
  shared.partial_sum[slot] = sum;
  std::copy_n(v_sums, s.head_dim, shared.partial_v.data() + slot * s.head_dim);
}

void Phases::combine_head(const Block& b, int head, int splits, float* out) {
  const int head_dim = b.model->shape().head_dim;
  const SharedScratch& shared = *b.shared;
  const size_t first = static_cast<size_t>(head) * kMaxSplits;
  const float* maxima = shared.partial_max.data() + first;
  const float largest = *std::max_element(maxima, maxima + splits);
  std::fill_n(out, head_dim, 0.0f);
  float sum = 0;
  for (int split = 0; split < splits; ++split) {
    const float weight = exponential(maxima[split] - largest);
    const float* v_sums = shared.partial_v.data() + (first + split) * head_dim;
    sum += weight * shared.partial_sum[first + split];
    for (int d = 0; d < head_dim; ++d) out[d] += weight * v_sums[d];
  }
  for (int d = 0; d < head_dim; ++d) out[d] /= sum;
}

void Phases::block_add_to_residual(Block& b, const Matrix& w, const float* x) {
  const Range mine = partition(w.rows, b.blocks, b.index);
  project(b, w, mine, x, b.local.rows.data());
  for (int r = mine.begin; r < mine.end; ++r) b.shared->h[r] += b.local.rows[r - mine.begin];
}

void Phases::phase_embed(Block& b, int32_t id, const Bf16* vector) {
  const Matrix& table = b.model->weights.embed_tokens;
  if (vector != nullptr) {
    std::transform(vector, vector + b.model->shape().hidden, b.local.x.begin(), to_float);
  } else if (id < 0) {
    std::fill(b.local.x.begin(), b.local.x.end(), std::numeric_limits<float>::quiet_NaN());
  } else {
    const auto multiplier = static_cast<float>(b.model->shape().embedding_multiplier);
    std::transform(table.row(id).begin(), table.row(id).end(), b.local.x.begin(),
                   [multiplier](Bf16 x) { return to_float(x) * multiplier; });
  }
  const Range mine = partition(b.model->shape().hidden, b.blocks, b.index);
  for (int r = mine.begin; r < mine.end; ++r) b.shared->h[r] = b.local.x[r];
}

void Phases::phase_qkv(Block& b, int layer) {
  const LayerWeights& w = b.model->weights.layers[layer];
  float* x = b.local.x.data();
  rms_norm(b, layer == 0 ? x : b.shared->h.data(), w.input_layernorm, x);
  const Range mine = partition(b.model->shape().qkv_width(), b.blocks, b.index);
  int first = 0;
  for (const auto& [part, bias] : {std::pair(&w.q_proj, &w.q_bias), std::pair(&w.k_proj, &w.k_bias),
                                   std::pair(&w.v_proj, &w.v_bias)}) {
    const Range rows = overlap(mine, first, part->rows);
    if (rows.size() > 0)
      project(b, *part, rows, x, b.shared->qkv.data() + first + rows.begin, *bias);
    first += part->rows;
  }
}

void Phases::phase_attention(Block& b, int layer, int position) {
  const ModelShape& s = b.model->shape();
  const int context = attended_positions(b, position);
  const int splits = attention_splits(context, s.kv_heads, b.blocks);
  const float score_scale = 1.0f / std::sqrt(static_cast<float>(s.head_dim));
  for (int item = b.index; item < s.kv_heads * splits; item += b.blocks) {
    const int kv_head = item / splits;
    const int split = item % splits;
    if (split == splits - 1) write_kv_row(b, layer, kv_head, position);
    for (int g = 0; g < s.gqa_group(); ++g) {
      const int head = kv_head * s.gqa_group() + g;
      const float* raw = b.shared->qkv.data() + head * s.head_dim;
      float* q = b.local.q.data() + g * s.head_dim;
      prepare_head(b, Head::kQuery, raw, layer, position, q);
      for (int d = 0; d < s.head_dim; ++d) q[d] *= score_scale;
      attend(b, layer, kv_head, partition(context, splits, split), q, head, split);
    }
  }
}

void Phases::phase_o_proj(Block& b, int layer, int position) {
  const ModelShape& s = b.model->shape();
  const int splits = attention_splits(attended_positions(b, position), s.kv_heads, b.blocks);
  float* attn = b.local.attn.data();
  for (int head = 0; head < s.heads; ++head) {
    combine_head(b, head, splits, attn + head * s.head_dim);
  }
  block_add_to_residual(b, b.model->weights.layers[layer].o_proj, attn);
}

void Phases::phase_gate_up(Block& b, int layer) {
  const LayerWeights& w = b.model->weights.layers[layer];
  float* x = b.local.x.data();
  rms_norm(b, b.shared->h.data(), w.post_attention_layernorm, x);
  const Range mine = partition(w.gate_proj.rows, b.blocks, b.index);
  float* gate = b.local.rows.data();
  float* up = gate + mine.size();
  project(b, w.gate_proj, mine, x, gate);
  project(b, w.up_proj, mine, x, up);
  for (int i = 0; i < mine.size(); ++i) {
    b.shared->act[mine.begin + i] = activate(b, gate[i]) * up[i];
  }
}

void Phases::phase_down(Block& b, int layer) {
  const int hidden = b.model->shape().hidden;
  block_add_to_residual(b, b.model->weights.layers[layer].down_proj, b.shared->act.data());
  const Range mine = partition(hidden, b.blocks, b.index);
  float* copy = b.shared->hidden.data() + static_cast<size_t>(layer) * hidden;
  for (int r = mine.begin; r < mine.end; ++r) copy[r] = b.shared->h[r];
}

Range Phases::head_rows(const Block& b) {
  return partition(b.model->weights.lm_head.rows, b.blocks, b.index);
}

void Phases::head_logits(Block& b, Range rows) {
  const Matrix& head = b.model->weights.lm_head;
  const Bf16* first = head.data + static_cast<size_t>(rows.begin) * head.cols;
  float* logits = b.shared->logits.data();
  matvec(b, first, rows.size(), head.cols, b.local.x.data(), logits + rows.begin);
}

bool Phases::better(Best a, Best other) {
  return a.logit != other.logit ? a.logit > other.logit : a.id < other.id;
}

Best Phases::best_of(const float* logits, Range rows) {
  // A block without rows loses every tie.
  Best best{-kInfinity, std::numeric_limits<int32_t>::max()};
  bool has_nan = false;
  for (int r = rows.begin; r < rows.end; ++r) {
    has_nan = has_nan || std::isnan(logits[r]);
    if (better({logits[r], r}, best)) best = {logits[r], r};
  }
  if (has_nan) best = {std::numeric_limits<float>::quiet_NaN(), -1};
  return best;
}

void Phases::phase_lm_head(Block& b, float* logits_out, float* hidden_out) {
  rms_norm(b, b.shared->h.data(), b.model->weights.final_norm, b.local.x.data());
  if (hidden_out != nullptr) {
    const Range own = partition(b.model->shape().hidden, b.blocks, b.index);
    const auto x = b.local.x.begin();
    std::copy(x + own.begin, x + own.end, hidden_out + own.begin);
  }
  const Range mine = head_rows(b);
  head_logits(b, mine);
  const float* logits = b.shared->logits.data();
  b.shared->best[b.index] = best_of(logits, mine);
  if (logits_out) std::copy(logits + mine.begin, logits + mine.end, logits_out + mine.begin);
}

int32_t Phases::greedy_id(std::span<const Best> winners) {
  Best best{-kInfinity, std::numeric_limits<int32_t>::max()};
  for (const Best& winner : winners) {
    // Comparisons with NaN are false, so a NaN would lose silently.
    if (std::isnan(winner.logit)) return -1;
    if (better(winner, best)) best = winner;
  }
  return best.id;
}

int32_t Phases::block_reduce_best(Block& b) { return greedy_id(b.shared->best); }

}  // namespace mkbench::host_twin
