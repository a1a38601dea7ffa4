// A step of dense models (Qwen3, Qwen2, Llama) in which one bug of bugs.inc can be planted, on the CPU or, where nvcc
// compiles it, on a GPU, in one block. fp32 between bf16 weights. buggy_engine.h makes an engine of it.
#pragma once

#include <cmath>

#include "references/step_engine.h"

#ifdef __CUDACC__
#define BUGGY __device__ inline
#else
#define BUGGY inline
#endif

namespace buggy {

enum class Bug {
  none,
#define BUG(name, model, fits, text) name,
#include "tests/plugins/bugs.inc"
#undef BUG
};

using Layer = mkbench_step::Layer<uint16_t>;

struct Decoder {
  mkbench_model m;
  Bug bug;
  int rows;  // of the KV cache
  const uint16_t *embedding, *head, *final_norm;
  const Layer* layers;
  float *keys, *values;                                   // [layers + 1, rows, kv_heads * head_dim]
  float *h, *x, *q, *k, *v, *mixed, *gate, *up, *logits;  // a vector of this step each
  float* scores;                                          // [heads, rows]
  const float* turns;                                     // cos, sin: [rows + 2, head_dim / 2, 2]

  BUGGY bool has(Bug b) const { return bug == b; }
};

// The threads that compute a step share each loop and wait for each other behind it.
#ifdef __CUDACC__
BUGGY int first() { return threadIdx.x; }
BUGGY int threads() { return blockDim.x; }
BUGGY void meet() { __syncthreads(); }
#else
BUGGY int first() { return 0; }
BUGGY int threads() { return 1; }
BUGGY void meet() {}
#endif
template <class Work>
BUGGY void each(int n, const Work& work) {
  for (int i = first(); i < n; i += threads()) work(i);
  meet();
}

BUGGY float widen(uint16_t bf16) {
  const uint32_t bits = uint32_t{bf16} << 16;
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}
BUGGY float widen(float x) { return x; }

// n is a multiple of 16.
template <class T>
BUGGY float dot(const T* w, const float* x, int n) {
  float part[16] = {}, sum = 0;
  for (int i = 0; i < n; i += 16) {
    for (int j = 0; j < 16; ++j) part[j] += widen(w[i + j]) * x[i + j];
  }
  for (int j = 0; j < 16; ++j) sum += part[j];
  return sum;
}

// What is wrong with a product: w is read by columns, sums leave out their last `cut` elements,
// results stand as [rows / groups, groups] instead of [groups, rows / groups].
struct Slip {
  bool by_columns = false;
  int cut = 0, groups = 1;
};

// y = w . x + bias, [rows]
BUGGY void multiply(const uint16_t* w, const float* x, float* y, int rows, int cols,
                    const uint16_t* bias = nullptr, const Slip& slip = {}) {
  each(rows, [&](int r) {
    float sum = 0;
    if (!slip.by_columns) sum = dot(w + size_t(r) * cols, x, cols - slip.cut);
    for (int i = 0; slip.by_columns && i < cols; ++i) sum += widen(w[size_t(i) * rows + r]) * x[i];
    y[r % slip.groups * (rows / slip.groups) + r / slip.groups] =
        sum + (bias != nullptr ? widen(bias[r]) : 0);
  });
}

// out = weight * x / sqrt(mean(x^2) + eps); every thread computes the mean.
BUGGY void rms_norm(const Decoder& d, const float* x, const uint16_t* weight, float* out, int n,
                    bool weighted = true, bool stream = true) {
  float mean = 0, squares = 0;
  int counted = n, divisor = n;
  if (d.has(Bug::half_norm) && stream) counted = divisor = n / 2;
  if (d.has(Bug::norm_tail) && stream) counted = n - 16;
  if (d.has(Bug::norm_unbiased) && stream) divisor = n - 1;
  if (d.has(Bug::norm_sum)) divisor = 1;
  for (int i = 0; d.has(Bug::layer_norm) && i < n; ++i) mean += x[i] / n;
  for (int i = 0; i < counted; ++i) squares += (x[i] - mean) * (x[i] - mean);
  const float eps = d.has(Bug::eps) ? 1e-5f : float(d.m.rms_norm_eps);
  float scale = 1 / sqrtf(squares / divisor + eps);
  if (d.has(Bug::norm_no_root)) scale *= scale;
  const float plus = d.has(Bug::norm_plus_one) ? 1 : 0;
  meet();
  each(n, [&](int i) {
    const float w = weighted ? widen(weight[i]) + plus : 1;
    out[i] = (x[i] - mean) * scale * w * (d.has(Bug::norm_weight_twice) ? w : 1);
    if (d.has(Bug::clipped)) out[i] = fminf(1, fmaxf(-1, out[i]));
  });
}

BUGGY void norm_heads(const Decoder& d, float* x, int heads, const uint16_t* weight) {
  const bool weighted = !d.has(Bug::q_norm_unweighted) || x != d.q;
  for (int h = 0; weight != nullptr && h < heads; ++h)
    rms_norm(d, x + h * d.m.head_dim, weight, x + h * d.m.head_dim, d.m.head_dim, weighted, false);
}

// RoPE of the pairs (i, i + head_dim / 2) of each head.
BUGGY void rotate(const Decoder& d, float* x, int heads, int position) {
  const int half = d.m.head_dim / 2;
  each(heads * half, [&](int at) {
    const int i = at % half;
    float* low = x + at / half * d.m.head_dim + (d.has(Bug::rope_interleaved) ? 2 * i : i);
    float* high = low + (d.has(Bug::rope_interleaved) ? 1 : half);
    const float* turn = d.turns + 2 * (size_t(position) * half + i);
    float c = turn[0], s = d.has(Bug::rope_sign) ? -turn[1] : turn[1];
    if (d.has(Bug::rope_sin_cos)) c = turn[1], s = turn[0];
    if (d.has(Bug::rope_missing)) c = 1, s = 0;
    const float a = *low, b = *high;
    *low = a * c - b * s;
    *high = b * c + (d.has(Bug::rope_in_place) ? *low : d.has(Bug::rope_signs_alike) ? -a : a) * s;
  });
}

// mixed = attention over rows 0 .. position
BUGGY void attend(const Decoder& d, const float* keys, const float* values, int position) {
  const int dim = d.m.head_dim, width = d.m.kv_heads * dim, group = d.m.heads / d.m.kv_heads;
  int begin = 0, end = position + 1;
  if (d.has(Bug::mask_one_less) && end > 1) --end;
  if (d.has(Bug::mask_one_more) && end < d.rows) ++end;
  if (d.has(Bug::first_row_missing) && end > 1) begin = 1;
  if (d.has(Bug::window) && end > 16) begin = end - 16;
  if (d.has(Bug::first_rows_alone) && end > 32) end = 32;
  if (d.has(Bug::last_tile_unseen) && end > 16) end -= end % 16;
  float scale = 1 / sqrtf(float(dim));
  if (d.has(Bug::scale_missing)) scale = 1;
  if (d.has(Bug::scale_twice)) scale *= scale;
  if (d.has(Bug::scale_hidden)) scale = 1 / sqrtf(float(d.m.hidden));
  if (d.has(Bug::scale_heads)) scale = 1 / sqrtf(float(d.m.heads));
  const auto kv_head = [&](int h, Bug by_rest = Bug::gqa_map) {
    return d.has(Bug::gqa_first) ? 0 : d.has(by_rest) ? h % d.m.kv_heads : h / group;
  };
  const int summed = d.has(Bug::score_half) ? dim / 2 : dim;
  const int count = end - begin;
  each(d.m.heads * count, [&](int i) {
    const int h = i / count, t = begin + i % count;
    float& score = d.scores[h * d.rows + t];
    score = dot(keys + size_t(t) * width + kv_head(h) * dim, d.q + h * dim, summed) * scale;
    if (d.has(Bug::distance_penalty)) score -= 0.1f * float(position - t);
    if (d.has(Bug::scores_capped)) score = 2 * tanhf(score / 2);
    if (d.has(Bug::every_16th_row_missing) && t % 16 == 15) score = -INFINITY;
  });
  each(d.m.heads, [&](int h) {
    float *p = d.scores + h * d.rows, largest = -INFINITY, sum = 0;
    const bool online = d.has(Bug::online_unscaled);
    for (int t = begin; t < end && !online; ++t) largest = fmaxf(largest, p[t]);
    for (int t = begin; t < end; ++t) {
      if (online) largest = fmaxf(largest, p[t]);
      p[t] = d.has(Bug::softmax_base_2) ? exp2f(p[t] - largest) : expf(p[t] - largest);
      if (!d.has(Bug::softmax_fourths) || t % 4 != 3) sum += p[t];
    }
    if (d.has(Bug::softmax_plus_one)) sum += 1;
    for (int t = begin; t < end && !d.has(Bug::softmax_sum); ++t) p[t] /= sum;
  });
  each(d.m.heads * dim / 16, [&](int part) {
    const int h = part * 16 / dim, at = part * 16 % dim;
    int head = kv_head(h, d.has(Bug::gqa_map) ? Bug::gqa_map : Bug::gqa_map_of_values);
    if (d.has(Bug::next_value_head)) head = (head + 1) % d.m.kv_heads;
    float sum[16] = {};
    for (int t = begin; t < end; ++t) {
      const int row = d.has(Bug::value_rows_exchanged) && (t ^ 1) < end ? t ^ 1 : t;
      const float* value = values + size_t(row) * width + head * dim + at;
      for (int j = 0; j < 16; ++j) sum[j] += d.scores[h * d.rows + t] * value[j];
    }
    const bool across = d.has(Bug::heads_transposed);
    for (int j = 0; j < 16; ++j)
      d.mixed[across ? (at + j) * d.m.heads + h : h * dim + at + j] = sum[j];
  });
  if (d.has(Bug::heads_averaged))
    each(dim, [&](int i) { d.mixed[i] = d.mixed[dim + i] = (d.mixed[i] + d.mixed[dim + i]) / 2; });
}

BUGGY float activation(const Decoder& d, float x) {
  switch (d.bug) {
    case Bug::gelu:
      return x / 2 * (1 + tanhf(0.79788456f * (x + 0.044715f * x * x * x)));
    case Bug::relu:
      return fmaxf(x, 0);
    case Bug::sigmoid:
      return 1 / (1 + expf(-x));
    case Bug::activation_missing:
      return x;
    case Bug::silu_base_2:
      return x / (1 + exp2f(-x));
    case Bug::silu_half:
      return x / (1 + expf(-x / 2));
    default:
      return x / (1 + expf(-x));
  }
}

// Runs layer `number` with the weights `l`. prompt: rows that a prefill has written.
BUGGY void run_layer(const Decoder& d, const Layer& l, int number, int position, int prompt) {
  const mkbench_model& m = d.m;
  const int q_width = m.heads * m.head_dim, width = m.kv_heads * m.head_dim;
  const size_t cache = size_t(d.has(Bug::cache_shared) ? 0 : number) * d.rows * width;
  float *keys = d.keys + cache, *values = d.values + cache;
  const size_t read = d.has(Bug::cache_of_layer_before) && number > 0 ? cache / number : 0;
  const bool norms = d.has(Bug::norms_swapped), kv = d.has(Bug::kv_swapped);
  const bool v_of_k = kv || d.has(Bug::v_of_k);
  const auto bias = [&](const uint16_t* b) { return d.has(Bug::bias_dropped) ? nullptr : b; };
  const auto normed = [&](const uint16_t* weight, Bug missing) {
    if (d.has(missing))
      each(m.hidden, [&](int i) { d.x[i] = d.h[i]; });
    else
      rms_norm(d, d.h, weight, d.x, m.hidden);
  };
  normed(norms ? l.post_norm : l.input_norm, Bug::input_norm_missing);
  multiply(l.q, d.x, d.q, q_width, m.hidden, bias(l.q_bias),
           {d.has(Bug::q_transposed), 0, d.has(Bug::q_split) ? m.heads : 1});
  multiply(kv ? l.v : l.k, d.x, d.k, width, m.hidden, bias(kv ? l.v_bias : l.k_bias));
  multiply(v_of_k ? l.k : l.v, d.x, d.v, width, m.hidden, bias(v_of_k ? l.k_bias : l.v_bias));
  if (d.has(Bug::bias_twice) && l.q_bias != nullptr) {
    each(q_width, [&](int i) { d.q[i] += widen(l.q_bias[i]); });
    each(width, [&](int i) { d.k[i] += widen(l.k_bias[i]), d.v[i] += widen(l.v_bias[i]); });
  }

  const bool other = d.has(Bug::qk_norms_swapped), late = d.has(Bug::norm_after_rope);
  const uint16_t *q_norm = other ? l.k_norm : l.q_norm, *k_norm = other ? l.q_norm : l.k_norm;
  if (d.has(Bug::q_norm_missing)) q_norm = nullptr;
  if (d.has(Bug::q_norm_missing_in_layer_3) && number == 3) q_norm = nullptr;
  if (d.has(Bug::k_norm_missing)) k_norm = nullptr;
  if (d.has(Bug::k_norm_of_q)) k_norm = q_norm;
  if (d.has(Bug::value_normed)) norm_heads(d, d.v, m.kv_heads, k_norm);
  int at = position;
  if (d.has(Bug::decode_shifted) && position >= prompt) ++at;
  if (d.has(Bug::positions_restart) && position >= prompt) at -= prompt;
  if (d.has(Bug::positions_wrap)) at %= 32;
  if (!late) norm_heads(d, d.q, m.heads, q_norm), norm_heads(d, d.k, m.kv_heads, k_norm);
  rotate(d, d.q, d.has(Bug::rope_few_queries) ? m.kv_heads : m.heads,
         at + (d.has(Bug::q_position) ? 1 : 0));
  if (d.has(Bug::rope_of_values)) rotate(d, d.v, m.kv_heads, at);
  if (!d.has(Bug::rope_q_alone)) rotate(d, d.k, m.kv_heads, at + (d.has(Bug::k_position) ? 1 : 0));
  if (late) norm_heads(d, d.q, m.heads, q_norm), norm_heads(d, d.k, m.kv_heads, k_norm);

  if (d.has(Bug::row_late)) attend(d, keys, values, position);
  each(width, [&](int i) {
    keys[size_t(position) * width + i] = d.k[i];
    values[size_t(position) * width + i] = d.v[i];
  });
  if (d.has(Bug::keys_for_values)) values = keys;
  if (!d.has(Bug::row_late)) attend(d, keys - read, values - read, position);

  // The output of a part of the layer, d.q or d.gate, joins the stream.
  const auto join = [&](const float* out, Bug missing) {
    each(m.hidden, [&](int i) {
      const bool x = d.has(Bug::residual_normed) ||
                     (d.has(Bug::mlp_residual_normed) && missing == Bug::mlp_residual_missing);
      d.h[i] = (x ? d.x[i] : d.has(missing) ? 0 : d.h[i]) + out[i];
    });
  };
  const auto twice = [&](Bug bug, float* vector) {
    if (d.has(bug)) each(m.hidden, [&](int i) { vector[i] *= 2; });
  };
  multiply(l.o, d.mixed, d.q, m.hidden, q_width, nullptr,
           {d.has(Bug::o_transposed), d.has(Bug::o_half) ? q_width / 2 : 0});
  twice(Bug::residual_twice, d.h);
  twice(Bug::attention_twice, d.q);
  join(d.q, Bug::attention_residual_missing);
  if (d.has(Bug::attention_again)) each(m.hidden, [&](int i) { d.mixed[i] = d.q[i]; });
  if (d.has(Bug::mlp_missing_in_layer_1) && number == 1) return;

  const bool stale = d.has(Bug::stale_mlp_input) && number == 2;
  if (!stale && !d.has(Bug::mlp_of_attention_input)) {
    normed(norms || d.has(Bug::post_norm_of_attention) ? l.input_norm : l.post_norm,
           Bug::post_norm_missing);
  }
  const bool swapped =
      d.has(Bug::gate_up_swapped) || (d.has(Bug::swapped_in_layer_1) && number == 1);
  multiply(swapped ? l.up : l.gate, d.x, d.gate, m.intermediate, m.hidden);
  multiply(swapped || d.has(Bug::gate_twice) ? l.gate : l.up, d.x, d.up, m.intermediate, m.hidden);
  each(m.intermediate, [&](int i) {
    const int from = d.has(Bug::up_shifted) ? (i + 1) % m.intermediate : i;
    const float gate = activation(d, d.gate[i]), up = d.up[from];
    d.gate[i] = gate * (d.has(Bug::up_missing)       ? 1
                        : d.has(Bug::both_activated) ? activation(d, up)
                                                     : up);
    if (d.has(Bug::gate_plus_up)) d.gate[i] = gate + up;
    if (d.has(Bug::gate_sevenths) && i % 7 == 6) d.gate[i] = 0;
  });
  multiply(d.has(Bug::layer_0_down) ? d.layers->down : l.down, d.gate, d.q, m.hidden,
           m.intermediate, nullptr, {d.has(Bug::down_transposed), d.has(Bug::down_tail) ? 32 : 0});
  twice(Bug::mlp_residual_twice, d.h);
  join(d.q, Bug::mlp_residual_missing);
  if (d.has(Bug::attention_again)) each(m.hidden, [&](int i) { d.h[i] += d.mixed[i]; });
}

// Writes the KV rows of `position`.
BUGGY void run_layers(const Decoder& d, int token, int position, int prompt) {
  const int hidden = d.m.hidden, last = d.m.layers - 1;
  const uint16_t* table = d.has(Bug::embedding_of_head) ? d.head : d.embedding;
  each(hidden, [&](int i) {
    const int id = d.has(Bug::embedding_shifted) ? (token + 1) % d.m.vocab : token;
    d.h[i] = widen(table[size_t(id) * hidden + i]);
    if (d.has(Bug::embedding_scaled)) d.h[i] *= sqrtf(float(hidden));
    if (d.has(Bug::embedding_halved) && i >= hidden / 2) d.h[i] = 0;
  });
  for (int n = 0; n <= last; ++n) {
    if (d.has(Bug::layer_skipped) && n == 2) continue;
    if (d.has(Bug::last_layer_skipped) && n == last) continue;
    if (d.has(Bug::stream_damped)) each(hidden, [&](int i) { d.h[i] *= 0.7f; });
    int weights = d.has(Bug::first_layer_alone) ? 0 : n;
    if (d.has(Bug::layer_before) && n == 2) weights = 1;
    if (d.has(Bug::layers_reversed)) weights = last - n;
    run_layer(d, d.layers[weights], n, position, prompt);
    if (d.has(Bug::layer_repeated) && n == 2)  // with KV rows of its own
      run_layer(d, d.layers[n], d.m.layers, position, prompt);
    if (d.has(Bug::layer_repeated_in_place) && n == 2)
      run_layer(d, d.layers[n], n, position, prompt);
    if (d.has(Bug::signs_flipped) && n == 1)
      each(hidden, [&](int i) { d.h[i] = i % 16 == 0 ? -d.h[i] : d.h[i]; });
  }
}

// Sets *id to the lowest id of the largest logit.
BUGGY void score(const Decoder& d, float* logits, int32_t* id) {
  const int hidden = d.m.hidden, vocab = d.m.vocab;
  if (!d.has(Bug::final_norm_missing))
    rms_norm(d, d.h, d.final_norm, d.h, hidden, !d.has(Bug::final_norm_unweighted));
  const uint16_t* head = d.has(Bug::head_of_embedding) ? d.embedding : d.head;
  multiply(head, d.h, d.logits, vocab, hidden, nullptr,
           {d.has(Bug::head_transposed), d.has(Bug::head_part) ? 16 : 0});
  each(vocab, [&](int i) {
    logits[i] = d.logits[d.has(Bug::head_shifted) ? (i + vocab - 1) % vocab : i];
    if (d.has(Bug::head_tail) && i >= vocab - 160) logits[i] = 0;
  });
  each(1, [&](int) {
    *id = 0;
    for (int i = 1; i < vocab; ++i) *id = logits[i] > logits[*id] ? i : *id;
  });
}

#ifdef __CUDACC__
__global__ void __launch_bounds__(512)
    run_step(Decoder d, int token, int position, int prompt, float* logits, int32_t* id) {
#else
inline void run_step(const Decoder& d, int token, int position, int prompt, float* logits,
                     int32_t* id) {
#endif
  run_layers(d, token, position, prompt);
  if (id != nullptr) score(d, logits, id);
}

}  // namespace buggy
