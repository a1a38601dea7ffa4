#include "kernels/host_twin/phases.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/host_twin/faults.h"
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
  matvec(b, w.row(range.begin).data(), range.size(), w.cols, x, y);
  round_as_hf(b, y, range.size());
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

// QK-norm and RoPE of one query or key head at a position.
void prepare_head(const Block& b, const float* raw, const Matrix& norm, bool is_query, int position,
                  float* out) {
  const int head_dim = b.model->shape().head_dim;
  const int angle = rotary_position(b, position, is_query);
  const auto turn = [&] { rotate(out, head_dim, b.rope->cosines(angle), b.rope->sines(angle)); };
  const PlantedFault skip = is_query ? PlantedFault::kSkipQNorm : PlantedFault::kSkipKNorm;
  const bool rotated_first = planted(b, PlantedFault::kNormAfterRope);
  if (rotated_first || planted(b, skip)) {
    std::copy_n(raw, head_dim, out);
  } else {
    rms_norm(raw, norm, b.model->eps, out);
    round_as_hf(b, out, head_dim);
  }
  turn();
  if (rotated_first) rms_norm(out, norm, b.model->eps, out);
  round_as_hf(b, out, head_dim);
}

// This position's K and V of one kv head, to the cache.
void write_kv_row(Block& b, int layer, int kv_head, int position) {
  const ModelShape& s = b.model->shape();
  const LayerWeights& w = b.model->weights.layers[layer];
  const float* k_raw = b.shared->qkv.data() + s.q_width() + kv_head * s.head_dim;
  const float* v_raw = k_raw + s.kv_width();
  const int row = written_row(b, position);
  if (row < 0) return;
  prepare_head(b, k_raw, w.k_norm, false, position, b.local.k.data());
  Bf16* k = b.kv->k(layer, kv_head, row);
  Bf16* v = b.kv->v(layer, kv_head, row);
  for (int d = 0; d < s.head_dim; ++d) k[d] = stored(b, b.local.k[d]);
  if (planted(b, PlantedFault::kValueNormed)) {
    rms_norm(v_raw, w.k_norm, b.model->eps, b.local.k.data());
    v_raw = b.local.k.data();
  }
  for (int d = 0; d < s.head_dim; ++d) v[d] = stored(b, v_raw[d]);
  if (planted(b, PlantedFault::kPrefixModified) && position >= 3) {
    b.kv->v(layer, kv_head, position - 3)[0].bits ^= 1;  // the last bit of what stands there
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
    round_as_hf(b, scores, count);
    leave_out(b, from, count, scores);
    const float before = largest;
    largest = std::max(largest, *std::max_element(scores, scores + count));
    if (planted(b, PlantedFault::kNoSoftmaxMax)) largest = 0;
    // What was summed against the old maximum is brought to the new one.
    const float rescale = exponential(b, before - largest);
    sum *= rescale;
    for (int d = 0; d < s.head_dim; ++d) v_sums[d] *= rescale;
    for (int i = 0; i < count; ++i) {
      scores[i] = exponential(b, scores[i] - largest);
      sum += scores[i];
      if (planted(b, PlantedFault::kBf16Softmax)) scores[i] = round_to_bf16(scores[i]);
    }
    b.model->ops->weighted_sum(b.kv->v(layer, kv_head, from), count, s.head_dim, scores, v_sums);
  }
  const size_t slot = static_cast<size_t>(head) * kMaxSplits + split;
  shared.partial_max[slot] = largest;
  shared.partial_sum[slot] = sum;
  std::copy_n(v_sums, s.head_dim, shared.partial_v.data() + slot * s.head_dim);
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
      const float weight = exponential(b, maxima[split] - largest);
      const float* v_sums = shared.partial_v.data() + (first + split) * s.head_dim;
      sum += weight * shared.partial_sum[first + split];
      for (int d = 0; d < s.head_dim; ++d) out[d] += weight * v_sums[d];
    }
    for (int d = 0; d < s.head_dim; ++d) out[d] /= sum;
    round_as_hf(b, out, s.head_dim);
  }
}

// h[rows of this block] += w * x.
void block_add_to_residual(Block& b, const Matrix& w, const float* x) {
  const Range mine = partition(w.rows, b.blocks, b.index);
  rows_times(b, w, mine, x, b.local.rows.data());
  for (int r = mine.begin; r < mine.end; ++r) b.shared->h[r] += b.local.rows[r - mine.begin];
  round_as_hf(b, b.shared->h.data() + mine.begin, mine.size());
}

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
  round_as_hf(b, x, s.hidden);
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
  const int context = context_at(b, position);
  const int splits = attention_splits(context, s.kv_heads, b.blocks);
  const float score_scale = 1.0f / std::sqrt(static_cast<float>(s.head_dim));
  for (int item = b.index; item < s.kv_heads * splits; item += b.blocks) {
    const int kv_head = item / splits;
    const int split = item % splits;
    if (split == splits - 1) write_kv_row(b, layer, kv_head, position);
    for (int g = 0; g < s.gqa_group(); ++g) {
      const int head = kv_head * s.gqa_group() + g;
      float* q = b.local.q.data() + g * s.head_dim;
      prepare_head(b, b.shared->qkv.data() + head * s.head_dim, w.q_norm, true, position, q);
      for (int d = 0; d < s.head_dim; ++d) q[d] *= score_scale;
      attend(b, layer, kv_head, partition(context, splits, split), q, head, split);
    }
  }
}

void phase_o_proj(Block& b, int layer, int position) {
  const ModelShape& s = b.model->shape();
  block_combine(b, attention_splits(context_at(b, position), s.kv_heads, b.blocks));
  block_add_to_residual(b, b.model->weights.layers[layer].o_proj, b.local.attn.data());
}

void phase_gate_up(Block& b, int layer) {
  const LayerWeights& w = b.model->weights.layers[layer];
  float* x = b.local.x.data();
  rms_norm(b.shared->h.data(), w.post_attention_layernorm, b.model->eps, x);
  round_as_hf(b, x, b.model->shape().hidden);
  const bool swapped = planted(b, PlantedFault::kSwapGateUp);
  const Range mine = partition(w.gate_proj.rows, b.blocks, b.index);
  float* gate = b.local.rows.data();
  float* up = gate + mine.size();
  rows_times(b, swapped ? w.up_proj : w.gate_proj, mine, x, gate);
  rows_times(b, swapped ? w.gate_proj : w.up_proj, mine, x, up);
  for (int i = 0; i < mine.size(); ++i) {
    float gated = activation(b, gate[i]);
    round_as_hf(b, &gated, 1);
    b.shared->act[mine.begin + i] = gated * up[i];
  }
  round_as_hf(b, b.shared->act.data() + mine.begin, mine.size());
}

void phase_down(Block& b, int layer) {
  const int hidden = b.model->shape().hidden;
  const Range mine = partition(hidden, b.blocks, b.index);
  const bool is_last = layer + 1 == b.model->shape().layers;
  if (planted(b, PlantedFault::kMlpResidualDropped) && layer == 1) {
    std::fill_n(b.shared->h.begin() + mine.begin, mine.size(), 0.0f);
  }
  const float* act = b.shared->act.data();
  if (planted(b, PlantedFault::kRowsLate) && is_last && b.index == b.blocks / 2) {
    // This block reads what the token before left in its place; the first token has no other.
    std::vector<float> now = b.shared->act;
    if (b.local.late.empty()) b.local.late = now;
    std::swap(b.local.late, now);
    block_add_to_residual(b, b.model->weights.layers[layer].down_proj, now.data());
  } else {
    block_add_to_residual(b, b.model->weights.layers[layer].down_proj, act);
  }
  float* copy = b.shared->hidden.data() + static_cast<size_t>(layer) * hidden;
  for (int r = mine.begin; r < mine.end; ++r) copy[r] = b.shared->h[r];
}

void phase_lm_head(Block& b, float* logits_out) {
  const Matrix& head = b.model->weights.lm_head;
  rms_norm(b.shared->h.data(), b.model->weights.final_norm, b.model->eps, b.local.x.data());
  round_as_hf(b, b.local.x.data(), b.model->shape().hidden);
  Range mine = partition(head.rows, b.blocks, b.index);
  mine = {std::min(mine.begin, scored_rows(b)), std::min(mine.end, scored_rows(b))};
  float* logits = b.shared->logits.data();
  matvec(b, head.row(0).data() + static_cast<size_t>(mine.begin) * head.cols, mine.size(),
         head.cols, b.local.x.data(), logits + mine.begin);
  if (planted(b, PlantedFault::kBf16Logits)) {
    for (int r = mine.begin; r < mine.end; ++r) logits[r] = round_to_bf16(logits[r]);
  }
  if (planted(b, PlantedFault::kNanLogit) && b.index == 0) {
    logits[0] = std::numeric_limits<float>::quiet_NaN();
  }
  b.shared->best[b.index] = winner(b, logits, mine);
  if (logits_out) std::copy(logits + mine.begin, logits + mine.end, logits_out + mine.begin);
}

int32_t block_reduce_best(Block& b) {
  const std::vector<Best>& words = b.shared->best;
  Best late = words[0];
  const bool reads_early = planted(b, PlantedFault::kArgmaxEarly);
  if (reads_early) {
    // One block's word is still that of the step before, or of nobody.
    const Best now = words[static_cast<size_t>(early_block(b))];
    late = b.local.early.value_or(Best{-kInfinity, now.id});
    b.local.early = now;
  }
  Best best{-kInfinity, std::numeric_limits<int32_t>::max()};
  for (int i = 0; i < b.blocks; ++i) {
    const Best word = reads_early && i == early_block(b) ? late : words[static_cast<size_t>(i)];
    // Comparisons with NaN are false, so a NaN would lose silently.
    if (std::isnan(word.logit)) return -1;
    if (better(b, word, best)) best = word;
  }
  return best.id;
}

}  // namespace mkbench::host_twin
