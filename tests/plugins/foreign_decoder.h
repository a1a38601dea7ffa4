/* A Qwen3 decoder that was written without mkbench, in C99 and C++: it takes a token and its position, and returns the next
 * token. step_cpu.cpp wraps it. fp32 between bf16 weights and bf16 KV rows, in one thread. */
#include <math.h>
#include <stdint.h>
#include <string.h>

struct foreign_layer {
  const uint16_t *input_norm, *q, *k, *v, *o, *q_norm, *k_norm, *post_norm, *gate, *up, *down;
};

struct foreign_decoder {
  int hidden, intermediate, layers, heads, kv_heads, head_dim, vocab, rows;
  double theta, eps;
  const uint16_t *embedding, *final_norm, *head;
  const struct foreign_layer* layer; /* [layers] */
  uint16_t *keys, *values;           /* [layers, rows, kv_heads * head_dim] */
  float* scratch;                    /* [foreign_scratch()] */
};

static size_t foreign_scratch(const struct foreign_decoder* d) {
  return (size_t)(2 * d->hidden + 2 * d->heads * d->head_dim + d->kv_heads * d->head_dim +
                  2 * d->intermediate + d->rows + d->vocab);
}

static float widen(uint16_t bf16) {
  const uint32_t bits = (uint32_t)bf16 << 16;
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

/* row = x in bf16, rounded to nearest, ties to even. */
static void store_row(const float* x, uint16_t* row, int n) {
  int i;
  for (i = 0; i < n; ++i) {
    uint32_t bits;
    memcpy(&bits, &x[i], sizeof bits);
    row[i] = (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
  }
}

/* y = w . x, or y += w . x */
static void multiply(const uint16_t* w, const float* x, float* y, int rows, int cols, int add) {
  int r, i;
  for (r = 0; r < rows; ++r) {
    float part[8] = {0, 0, 0, 0, 0, 0, 0, 0};
    for (i = 0; i < cols; ++i) part[i % 8] += widen(w[(size_t)r * (size_t)cols + (size_t)i]) * x[i];
    for (i = 1; i < 8; ++i) part[0] += part[i];
    y[r] = add ? y[r] + part[0] : part[0];
  }
}

static void rms_norm(const float* x, const uint16_t* weight, float* out, int n, double eps) {
  double squares = 0;
  float scale;
  int i;
  for (i = 0; i < n; ++i) squares += (double)x[i] * x[i];
  scale = (float)(1 / sqrt(squares / n + eps));
  for (i = 0; i < n; ++i) out[i] = x[i] * scale * widen(weight[i]);
}

/* RMSNorm over each head of x, then rotation of its pairs (i, i + head_dim / 2). */
static void norm_and_rotate(const struct foreign_decoder* d, float* x, int heads,
                            const uint16_t* weight, int at) {
  const int half = d->head_dim / 2;
  int h, i;
  for (h = 0; h < heads; ++h, x += 2 * half) {
    rms_norm(x, weight, x, 2 * half, d->eps);
    for (i = 0; i < half; ++i) {
      const float angle =
          1 / powf((float)d->theta, (float)(2 * i) / (float)d->head_dim) * (float)at;
      const float c = cosf(angle), s = sinf(angle), low = x[i], high = x[i + half];
      x[i] = low * c - high * s;
      x[i + half] = high * c + low * s;
    }
  }
}

/* The attention of one query head over rows 0 .. at; p: scratch [at + 1]. */
static void attend(const float* q, const uint16_t* keys, const uint16_t* values, float* p,
                   float* out, int at, int dim, int width) {
  float largest = -INFINITY, sum = 0;
  int t, i;
  for (t = 0; t <= at; ++t) {
    p[t] = 0;
    for (i = 0; i < dim; ++i) p[t] += widen(keys[(size_t)t * (size_t)width + (size_t)i]) * q[i];
    p[t] /= sqrtf((float)dim);
    largest = fmaxf(largest, p[t]);
  }
  for (t = 0; t <= at; ++t) sum += p[t] = expf(p[t] - largest);
  for (i = 0; i < dim; ++i) out[i] = 0;
  for (t = 0; t <= at; ++t) {
    for (i = 0; i < dim; ++i)
      out[i] += p[t] / sum * widen(values[(size_t)t * (size_t)width + (size_t)i]);
  }
}

/* Writes the KV row of `at` and returns the next id. logits: NULL, or [vocab] to be filled. */
static int foreign_step(const struct foreign_decoder* d, int id, int at, float* logits) {
  const int q_width = d->heads * d->head_dim, width = d->kv_heads * d->head_dim;
  float *h = d->scratch, *x = h + d->hidden, *q = x + d->hidden, *mixed = q + q_width;
  float *row = mixed + q_width, *gate = row + width, *up = gate + d->intermediate;
  float *p = up + d->intermediate, *shown = logits != NULL ? logits : p + d->rows;
  int i, j, best = 0;
  for (i = 0; i < d->hidden; ++i)
    h[i] = widen(d->embedding[(size_t)id * (size_t)d->hidden + (size_t)i]);
  for (i = 0; i < d->layers; ++i) {
    const struct foreign_layer* l = &d->layer[i];
    uint16_t* keys = d->keys + (size_t)i * (size_t)d->rows * (size_t)width;
    uint16_t* values = d->values + (size_t)i * (size_t)d->rows * (size_t)width;
    rms_norm(h, l->input_norm, x, d->hidden, d->eps);
    multiply(l->q, x, q, q_width, d->hidden, 0);
    norm_and_rotate(d, q, d->heads, l->q_norm, at);
    multiply(l->k, x, row, width, d->hidden, 0);
    norm_and_rotate(d, row, d->kv_heads, l->k_norm, at);
    store_row(row, keys + (size_t)at * (size_t)width, width);
    multiply(l->v, x, row, width, d->hidden, 0);
    store_row(row, values + (size_t)at * (size_t)width, width);
    for (j = 0; j < d->heads; ++j) {
      const int from = j / (d->heads / d->kv_heads) * d->head_dim;
      attend(q + j * d->head_dim, keys + from, values + from, p, mixed + j * d->head_dim, at,
             d->head_dim, width);
    }
    multiply(l->o, mixed, h, d->hidden, q_width, 1);
    rms_norm(h, l->post_norm, x, d->hidden, d->eps);
    multiply(l->gate, x, gate, d->intermediate, d->hidden, 0);
    multiply(l->up, x, up, d->intermediate, d->hidden, 0);
    for (j = 0; j < d->intermediate; ++j) gate[j] *= up[j] / (1 + expf(-gate[j]));
    multiply(l->down, gate, h, d->hidden, d->intermediate, 1);
  }
  rms_norm(h, d->final_norm, h, d->hidden, d->eps);
  multiply(d->head, h, shown, d->vocab, d->hidden, 0);
  for (i = 1; i < d->vocab; ++i) {
    if (shown[i] > shown[best]) best = i;
  }
  return best;
}
