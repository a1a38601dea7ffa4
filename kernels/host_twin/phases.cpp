#include "kernels/host_twin/phases.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/partition.h"

namespace mkbench::host_twin {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// out[c] = x[c] / rms(x) * weight[c]. `x` and `out` may be the same.
void rms_norm(const float* x, const Matrix& weight, float eps, float* out) {
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
  const float scale = 1.0f / std::sqrt(sum / static_cast<float>(weight.cols) + eps);
  for (c = 0; c < weight.cols; ++c) out[c] = x[c] * scale * to_float(weight.data[c]);
}

// Rows [range) of w times x, to y[0 ..).
void rows_times(const Block& b, const Matrix& w, Range range, const float* x, float* y) {
  b.model->ops->matvec(w.row(range.begin).data(), range.size(), w.cols, x, y);
}

// The part of [begin, begin + size) that lies in `range`, counted from begin.
Range overlap(Range range, int begin, int size) {
  const int from = std::clamp(range.begin - begin, 0, size);
  return {from, std::clamp(range.end - begin, from, size)};
}

// Rotates the pairs (i, i + head_dim / 2) of one head by the angles of a position.
void rotate(float* head, int head_dim, const float* cosines, const float* sines) {
  const int half = head_dim / 2;
  for (int i = 0; i < half; ++i) {
    const float low = head[i], high = head[i + half];
    head[i] = low * cosines[i] - high * sines[i];
    head[i + half] = high * cosines[i] + low * sines[i];
  }
}

// This position's K and V of one kv head, to the cache.
void write_kv_row(Block& b, int layer, int kv_head, int position) {
  const ModelShape& s = b.model->shape();
  const LayerWeights& w = b.model->weights.layers[layer];
  const float* k_raw = b.shared->qkv.data() + s.q_width() + kv_head * s.head_dim;
  const float* v_raw = k_raw + s.kv_width();
  rms_norm(k_raw, w.k_norm, b.model->eps, b.local.k.data());
  rotate(b.local.k.data(), s.head_dim, b.rope->cosines(position), b.rope->sines(position));
  Bf16* k = b.kv->k(layer, kv_head, position);
  Bf16* v = b.kv->v(layer, kv_head, position);
  for (int d = 0; d < s.head_dim; ++d) {
    k[d] = to_bf16(b.local.k[d]);
    v[d] = to_bf16(v_raw[d]);
  }
}

// Attention of one query head over positions [range), as a partial: maximum, sum and weighted V, in
// tiles so that the scratch does not grow with the context.
void attend(Block& b, int layer, int kv_head, Range range, const float* q, int head, int split) {
  const ModelShape& s = b.model->shape();
  SharedScratch& shared = *b.shared;
  float* scores = b.local.scores.data();
  float* v_sums = b.local.v_sums.data();
  float largest = -kInfinity, sum = 0;
  std::fill_n(v_sums, s.head_dim, 0.0f);
  for (int from = range.begin; from < range.end; from += kScoreTile) {
    const int count = std::min(kScoreTile, range.end - from);
    b.model->ops->matvec(b.kv->k(layer, kv_head, from), count, s.head_dim, q, scores);
    const float before = largest;
    largest = std::max(largest, *std::max_element(scores, scores + count));
    // What was summed against the old maximum is brought to the new one.
    const float rescale = std::exp(before - largest);
    sum *= rescale;
    for (int d = 0; d < s.head_dim; ++d) v_sums[d] *= rescale;
    for (int i = 0; i < count; ++i) {
      scores[i] = std::exp(scores[i] - largest);
      sum += scores[i];
    }
    b.model->ops->weighted_sum(b.kv->v(layer, kv_head, from), count, s.head_dim, scores, v_sums);
  }
  const size_t slot = static_cast<size_t>(head) * kMaxSplits + split;
  shared.partial_max[slot] = largest;
  shared.partial_sum[slot] = sum;
  std::copy_n(v_sums, s.head_dim, shared.partial_v.data() + slot * s.head_dim);
}

// Positions that attention reads at `position`: all up to and including it.
int context_at(const Model& model, int position) {
  if (model.fault == PlantedFault::kCacheLength) return std::max(position, 1);
  return position + 1;
}

// attn = softmax-weighted V of every query head, from the partials of all splits.
void block_combine(Block& b, int splits) {
  const ModelShape& s = b.model->shape();
  const SharedScratch& shared = *b.shared;
  for (int head = 0; head < s.heads; ++head) {
    const size_t first = static_cast<size_t>(head) * kMaxSplits;
    const float* maxima = shared.partial_max.data() + first;
    const float largest = *std::max_element(maxima, maxima + splits);
    float* out = b.local.attn.data() + head * s.head_dim;
    std::fill_n(out, s.head_dim, 0.0f);
    float sum = 0;
    for (int split = 0; split < splits; ++split) {
      const float weight = std::exp(maxima[split] - largest);
      const float* v_sums = shared.partial_v.data() + (first + split) * s.head_dim;
      sum += weight * shared.partial_sum[first + split];
      for (int d = 0; d < s.head_dim; ++d) out[d] += weight * v_sums[d];
    }
    for (int d = 0; d < s.head_dim; ++d) out[d] /= sum;
  }
}

// h[rows of this block] += w * x.
void block_add_to_residual(Block& b, const Matrix& w, const float* x) {
  const Range mine = partition(w.rows, b.blocks, b.index);
  rows_times(b, w, mine, x, b.local.rows.data());
  for (int r = mine.begin; r < mine.end; ++r) b.shared->h[r] += b.local.rows[r - mine.begin];
}

// True when `a` goes before `b`: larger, or as large with a lower index.
bool better(Best a, Best b) { return a.logit > b.logit || (a.logit == b.logit && a.id < b.id); }

}  // namespace

void phase_embed(Block& b, int32_t id) {
  const Matrix& table = b.model->weights.embed_tokens;
  if (id < 0) {
    std::fill(b.local.x.begin(), b.local.x.end(), std::numeric_limits<float>::quiet_NaN());
  } else {
    std::transform(table.row(id).begin(), table.row(id).end(), b.local.x.begin(), to_float);
  }
  const Range mine = partition(b.model->shape().hidden, b.blocks, b.index);
  for (int r = mine.begin; r < mine.end; ++r) b.shared->h[r] = b.local.x[r];
}

void phase_qkv(Block& b, int layer) {
  const ModelShape& s = b.model->shape();
  const LayerWeights& w = b.model->weights.layers[layer];
  float* x = b.local.x.data();
  rms_norm(layer == 0 ? x : b.shared->h.data(), w.input_layernorm, b.model->eps, x);
  const Range mine = partition(s.qkv_width(), b.blocks, b.index);
  int first = 0;
  for (const Matrix* part : {&w.q_proj, &w.k_proj, &w.v_proj}) {
    const Range rows = overlap(mine, first, part->rows);
    if (rows.size() > 0) {
      rows_times(b, *part, rows, x, b.shared->qkv.data() + first + rows.begin);
    }
    first += part->rows;
  }
}

void phase_attention(Block& b, int layer, int position) {
  const ModelShape& s = b.model->shape();
  const LayerWeights& w = b.model->weights.layers[layer];
  const int context = context_at(*b.model, position);
  const int splits = attention_splits(context, s.kv_heads, b.blocks);
  const float score_scale = 1.0f / std::sqrt(static_cast<float>(s.head_dim));
  for (int item = b.index; item < s.kv_heads * splits; item += b.blocks) {
    const int kv_head = item / splits;
    const int split = item % splits;
    if (split == splits - 1) write_kv_row(b, layer, kv_head, position);
    for (int g = 0; g < s.gqa_group(); ++g) {
      const int head = kv_head * s.gqa_group() + g;
      float* q = b.local.q.data() + g * s.head_dim;
      rms_norm(b.shared->qkv.data() + head * s.head_dim, w.q_norm, b.model->eps, q);
      rotate(q, s.head_dim, b.rope->cosines(position), b.rope->sines(position));
      for (int d = 0; d < s.head_dim; ++d) q[d] *= score_scale;
      attend(b, layer, kv_head, partition(context, splits, split), q, head, split);
    }
  }
}

void phase_o_proj(Block& b, int layer, int position) {
  const ModelShape& s = b.model->shape();
  block_combine(b, attention_splits(context_at(*b.model, position), s.kv_heads, b.blocks));
  block_add_to_residual(b, b.model->weights.layers[layer].o_proj, b.local.attn.data());
}

void phase_gate_up(Block& b, int layer) {
  const LayerWeights& w = b.model->weights.layers[layer];
  float* x = b.local.x.data();
  rms_norm(b.shared->h.data(), w.post_attention_layernorm, b.model->eps, x);
  const bool swapped = b.model->fault == PlantedFault::kSwapGateUp;
  const Range mine = partition(w.gate_proj.rows, b.blocks, b.index);
  float* gate = b.local.rows.data();
  float* up = gate + mine.size();
  rows_times(b, swapped ? w.up_proj : w.gate_proj, mine, x, gate);
  rows_times(b, swapped ? w.gate_proj : w.up_proj, mine, x, up);
  for (int i = 0; i < mine.size(); ++i) {
    const float silu = gate[i] / (1.0f + std::exp(-gate[i]));
    b.shared->act[mine.begin + i] = silu * up[i];
  }
}

void phase_down(Block& b, int layer) {
  const int hidden = b.model->shape().hidden;
  block_add_to_residual(b, b.model->weights.layers[layer].down_proj, b.shared->act.data());
  const Range mine = partition(hidden, b.blocks, b.index);
  float* copy = b.shared->hidden.data() + static_cast<size_t>(layer) * hidden;
  for (int r = mine.begin; r < mine.end; ++r) copy[r] = b.shared->h[r];
}

void phase_lm_head(Block& b, float* logits_out) {
  const Matrix& head = b.model->weights.lm_head;
  rms_norm(b.shared->h.data(), b.model->weights.final_norm, b.model->eps, b.local.x.data());
  const Range mine = partition(head.rows, b.blocks, b.index);
  float* logits = b.shared->logits.data();
  rows_times(b, head, mine, b.local.x.data(), logits + mine.begin);
  // A block without rows loses every tie.
  Best best{-kInfinity, std::numeric_limits<int32_t>::max()};
  bool has_nan = false;
  for (int r = mine.begin; r < mine.end; ++r) {
    has_nan = has_nan || std::isnan(logits[r]);
    if (better({logits[r], r}, best)) best = {logits[r], r};
  }
  if (has_nan) best = {std::numeric_limits<float>::quiet_NaN(), -1};
  b.shared->best[b.index] = best;
  if (logits_out) std::copy(logits + mine.begin, logits + mine.end, logits_out + mine.begin);
}

int32_t block_reduce_best(const Block& b) {
  Best best = b.shared->best[0];
  for (const Best& other : b.shared->best) {
    // Comparisons with NaN are false, so a NaN would lose silently.
    if (std::isnan(other.logit)) return -1;
    if (better(other, best)) best = other;
  }
  return best.id;
}

}  // namespace mkbench::host_twin
