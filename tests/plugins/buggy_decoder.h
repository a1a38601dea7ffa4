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

// y = w . x + bias, [rows]
BUGGY void multiply(const uint16_t* w, const float* x, float* y, int rows, int cols,
                    const uint16_t* bias = nullptr, bool by_columns = false) {
  each(rows, [&](int r) {
    float sum = 0;
    if (!by_columns) sum = dot(w + size_t(r) * cols, x, cols);
    for (int i = 0; by_columns && i < cols; ++i) sum += widen(w[size_t(i) * rows + r]) * x[i];
    y[r] = sum + (bias != nullptr ? widen(bias[r]) : 0);
  });
}

// out = weight * x / sqrt(mean(x^2) + eps); every thread computes the mean.
BUGGY void rms_norm(const Decoder& d, const float* x, const uint16_t* weight, float* out, int n,
                    bool weighted = true) {
  float mean = 0, squares = 0;
  const int counted = d.has(Bug::half_norm) ? n / 2 : n;
  for (int i = 0; d.has(Bug::layer_norm) && i < n; ++i) mean += x[i] / n;
  for (int i = 0; i < counted; ++i) squares += (x[i] - mean) * (x[i] - mean);
  const float eps = d.has(Bug::eps) ? 1e-5f : float(d.m.rms_norm_eps);
  const float scale = 1 / sqrtf(squares / (d.has(Bug::norm_sum) ? 1 : counted) + eps);
  const float plus = d.has(Bug::norm_plus_one) ? 1 : 0;
  meet();
  each(n, [&](int i) {
    out[i] = (x[i] - mean) * scale * (weighted ? widen(weight[i]) + plus : 1);
    if (d.has(Bug::clipped)) out[i] = fminf(1, fmaxf(-1, out[i]));
  });
}

BUGGY void norm_heads(const Decoder& d, float* x, int heads, const uint16_t* weight) {
  for (int h = 0; weight != nullptr && h < heads; ++h)
    rms_norm(d, x + h * d.m.head_dim, weight, x + h * d.m.head_dim, d.m.head_dim);
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
    *high = b * c + a * s;
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
  float scale = 1 / sqrtf(float(dim));
  if (d.has(Bug::scale_missing)) scale = 1;
  if (d.has(Bug::scale_twice)) scale *= scale;
  const auto kv_head = [&](int h) { return d.has(Bug::gqa_map) ? h % d.m.kv_heads : h / group; };
  const int count = end - begin;
  each(d.m.heads * count, [&](int i) {
    const int h = i / count, t = begin + i % count;
    float& score = d.scores[h * d.rows + t];
    score = dot(keys + size_t(t) * width + kv_head(h) * dim, d.q + h * dim, dim) * scale;
    if (d.has(Bug::distance_penalty)) score -= 0.1f * float(position - t);
    if (d.has(Bug::scores_capped)) score = 2 * tanhf(score / 2);
    if (d.has(Bug::every_16th_row_missing) && t % 16 == 15) score = -INFINITY;
  });
  each(d.m.heads, [&](int h) {
    float *p = d.scores + h * d.rows, largest = -INFINITY, sum = 0;
    for (int t = begin; t < end; ++t) largest = fmaxf(largest, p[t]);
    for (int t = begin; t < end; ++t)
      sum += p[t] = d.has(Bug::softmax_base_2) ? exp2f(p[t] - largest) : expf(p[t] - largest);
    for (int t = begin; t < end && !d.has(Bug::softmax_sum); ++t) p[t] /= sum;
  });
  each(d.m.heads * dim / 16, [&](int part) {
    const int h = part * 16 / dim, at = part * 16 % dim;
    const int head = d.has(Bug::next_value_head) ? (kv_head(h) + 1) % d.m.kv_heads : kv_head(h);
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
  const bool norms = d.has(Bug::norms_swapped), kv = d.has(Bug::kv_swapped);
  const auto bias = [&](const uint16_t* b) { return d.has(Bug::bias_dropped) ? nullptr : b; };
  const auto normed = [&](const uint16_t* weight, Bug missing) {
    if (d.has(missing))
      each(m.hidden, [&](int i) { d.x[i] = d.h[i]; });
    else
      rms_norm(d, d.h, weight, d.x, m.hidden);
  };
  normed(norms ? l.post_norm : l.input_norm, Bug::input_norm_missing);
  multiply(l.q, d.x, d.q, q_width, m.hidden, bias(l.q_bias), d.has(Bug::q_transposed));
  multiply(kv ? l.v : l.k, d.x, d.k, width, m.hidden, bias(kv ? l.v_bias : l.k_bias));
  multiply(kv ? l.k : l.v, d.x, d.v, width, m.hidden, bias(kv ? l.k_bias : l.v_bias));

  const bool other = d.has(Bug::qk_norms_swapped), late = d.has(Bug::norm_after_rope);
  const uint16_t *q_norm = other ? l.k_norm : l.q_norm, *k_norm = other ? l.q_norm : l.k_norm;
  if (d.has(Bug::q_norm_missing)) q_norm = nullptr;
  if (d.has(Bug::q_norm_missing_in_layer_3) && number == 3) q_norm = nullptr;
  if (d.has(Bug::k_norm_missing)) k_norm = nullptr;
  if (d.has(Bug::value_normed)) norm_heads(d, d.v, m.kv_heads, k_norm);
  int at = position;
  if (d.has(Bug::decode_shifted) && position >= prompt) ++at;
  if (d.has(Bug::positions_restart) && position >= prompt) at -= prompt;
  if (!late) norm_heads(d, d.q, m.heads, q_norm), norm_heads(d, d.k, m.kv_heads, k_norm);
  rotate(d, d.q, m.heads, at + (d.has(Bug::q_position) ? 1 : 0));
  if (!d.has(Bug::rope_q_alone)) rotate(d, d.k, m.kv_heads, at + (d.has(Bug::k_position) ? 1 : 0));
  if (late) norm_heads(d, d.q, m.heads, q_norm), norm_heads(d, d.k, m.kv_heads, k_norm);

  if (d.has(Bug::row_late)) attend(d, keys, values, position);
  each(width, [&](int i) {
    keys[size_t(position) * width + i] = d.k[i];
    values[size_t(position) * width + i] = d.v[i];
  });
  if (!d.has(Bug::row_late)) attend(d, keys, values, position);

  // The output of a part of the layer, d.q or d.gate, joins the stream.
  const auto join = [&](const float* out, Bug missing) {
    each(m.hidden, [&](int i) {
      const float stream = d.has(Bug::residual_normed) ? d.x[i] : d.has(missing) ? 0 : d.h[i];
      d.h[i] = stream + out[i];
    });
  };
  multiply(l.o, d.mixed, d.q, m.hidden, q_width, nullptr, d.has(Bug::o_transposed));
  if (d.has(Bug::residual_twice)) each(m.hidden, [&](int i) { d.h[i] *= 2; });
  join(d.q, Bug::attention_residual_missing);
  if (d.has(Bug::mlp_missing_in_layer_1) && number == 1) return;

  if (!d.has(Bug::stale_mlp_input) || number != 2)
    normed(norms ? l.input_norm : l.post_norm, Bug::post_norm_missing);
  const bool swapped =
      d.has(Bug::gate_up_swapped) || (d.has(Bug::swapped_in_layer_1) && number == 1);
  multiply(swapped ? l.up : l.gate, d.x, d.gate, m.intermediate, m.hidden);
  multiply(swapped ? l.gate : l.up, d.x, d.up, m.intermediate, m.hidden);
  each(m.intermediate, [&](int i) {
    const int from = d.has(Bug::up_shifted) ? (i + 1) % m.intermediate : i;
    d.gate[i] = activation(d, d.gate[i]) * (d.has(Bug::up_missing) ? 1 : d.up[from]);
    if (d.has(Bug::gate_sevenths) && i % 7 == 6) d.gate[i] = 0;
  });
  multiply(l.down, d.gate, d.q, m.hidden, m.intermediate);
  join(d.q, Bug::mlp_residual_missing);
}

// Writes the KV rows of `position`.
BUGGY void run_layers(const Decoder& d, int token, int position, int prompt) {
  const int hidden = d.m.hidden, last = d.m.layers - 1;
  const uint16_t* table = d.has(Bug::embedding_of_head) ? d.head : d.embedding;
  each(hidden, [&](int i) {
    d.h[i] = widen(table[size_t(token) * hidden + i]);
    if (d.has(Bug::embedding_scaled)) d.h[i] *= sqrtf(float(hidden));
    if (d.has(Bug::embedding_halved) && i >= hidden / 2) d.h[i] = 0;
  });
  for (int n = 0; n <= last; ++n) {
    if (d.has(Bug::layer_skipped) && n == 2) continue;
    if (d.has(Bug::last_layer_skipped) && n == last) continue;
    if (d.has(Bug::stream_damped)) each(hidden, [&](int i) { d.h[i] *= 0.7f; });
    int weights = d.has(Bug::first_layer_alone) ? 0 : n;
    if (d.has(Bug::layer_before) && n == 2) weights = 1;
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
  multiply(head, d.h, d.logits, vocab, hidden, nullptr, d.has(Bug::head_transposed));
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
