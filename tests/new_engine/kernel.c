/* A whole kernel for the engine of `mkbench new-engine DIR c`: tests/cli/test_new_engine.py puts it between "Your kernel
 * begins" and "ends". One position at a time, fp32 between bf16 weights; C99 and C++. */
#include <math.h>

static float widen(uint16_t bf16) {
  const uint32_t bits = (uint32_t)bf16 << 16;
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
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
static void norm_and_rotate(const mkbench_engine* e, float* x, int heads, const uint16_t* weight,
                            int at) {
  const int half = e->m.head_dim / 2;
  int h, i;
  for (h = 0; h < heads; ++h, x += 2 * half) {
    rms_norm(x, weight, x, 2 * half, e->m.rms_norm_eps);
    for (i = 0; i < half; ++i) {
      const float frequency =
          1 / powf((float)e->m.rope_theta, (float)(2 * i) / (float)e->m.head_dim);
      const float c = cosf(frequency * (float)at), s = sinf(frequency * (float)at);
      const float low = x[i], high = x[i + half];
      x[i] = low * c - high * s;
      x[i + half] = high * c + low * s;
    }
  }
}

/* The attention of one query head over rows 0 .. at; p: scratch [at + 1]. */
static void attend(const float* q, const float* keys, const float* values, float* p, float* out,
                   int at, int dim, int width) {
  float largest = -INFINITY, sum = 0;
  int t, i;
  for (t = 0; t <= at; ++t) {
    p[t] = 0;
    for (i = 0; i < dim; ++i) p[t] += keys[(size_t)t * (size_t)width + (size_t)i] * q[i];
    p[t] /= sqrtf((float)dim);
    largest = fmaxf(largest, p[t]);
  }
  for (t = 0; t <= at; ++t) sum += p[t] = expf(p[t] - largest);
  for (i = 0; i < dim; ++i) out[i] = 0;
  for (t = 0; t <= at; ++t) {
    for (i = 0; i < dim; ++i) out[i] += p[t] / sum * values[(size_t)t * (size_t)width + (size_t)i];
  }
}

/* Runs one id at position `at`: writes its KV row, and the final hidden vector to h [hidden]. */
static int32_t step(mkbench_engine* e, int32_t id, int32_t at, float* h) {
  const mkbench_model* m = &e->m;
  const int q_width = m->heads * m->head_dim, width = m->kv_heads * m->head_dim;
  float* x = (float*)malloc(sizeof(float) *
                            (size_t)(m->hidden + 2 * q_width + 2 * m->intermediate + at + 1));
  float *q = x + m->hidden, *mixed = q + q_width, *gate = mixed + q_width,
        *up = gate + m->intermediate;
  int32_t i, head;
  if (x == NULL) return fail(e, "no memory for a step");
  e->running = at;
  for (i = 0; i < m->hidden; ++i)
    h[i] = widen(e->embedding[(size_t)id * (size_t)m->hidden + (size_t)i]);
  for (i = 0; i < m->layers; ++i) {
    const struct layer* l = &e->layers[i];
    const size_t rows = (size_t)i * (size_t)e->max_context * (size_t)width;
    float* k = e->keys + rows + (size_t)at * (size_t)width;
    int32_t j;
    rms_norm(h, l->input_norm, x, m->hidden, m->rms_norm_eps);
    multiply(l->q, x, q, q_width, m->hidden, 0);
    multiply(l->k, x, k, width, m->hidden, 0);
    multiply(l->v, x, e->values + rows + (size_t)at * (size_t)width, width, m->hidden, 0);
    norm_and_rotate(e, q, m->heads, l->q_norm, at);
    norm_and_rotate(e, k, m->kv_heads, l->k_norm, at);
    for (head = 0; head < m->heads; ++head) {
      const size_t from = rows + (size_t)(head / (m->heads / m->kv_heads) * m->head_dim);
      attend(q + head * m->head_dim, e->keys + from, e->values + from, up + m->intermediate,
             mixed + head * m->head_dim, at, m->head_dim, width);
    }
    multiply(l->o, mixed, h, m->hidden, q_width, 1);
    rms_norm(h, l->post_norm, x, m->hidden, m->rms_norm_eps);
    multiply(l->gate, x, gate, m->intermediate, m->hidden, 0);
    multiply(l->up, x, up, m->intermediate, m->hidden, 0);
    for (j = 0; j < m->intermediate; ++j) gate[j] *= up[j] / (1 + expf(-gate[j]));
    multiply(l->down, gate, h, m->hidden, m->intermediate, 1);
  }
  free(x);
  return MKBENCH_OK;
}

static int32_t prefill_rows(mkbench_engine* e, const int32_t* ids, int32_t n) {
  float* h = (float*)malloc(sizeof(float) * (size_t)e->m.hidden);
  int32_t i, status = h != NULL ? MKBENCH_OK : fail(e, "no memory for a step");
  for (i = 0; status == MKBENCH_OK && i < n; ++i) status = step(e, ids[i], e->position + i, h);
  free(h);
  return status;
}

static int32_t decode_steps(mkbench_engine* e, int32_t n, const int32_t* forced, int32_t* ids,
                            float* logits) {
  const mkbench_model* m = &e->m;
  float* h = (float*)malloc(sizeof(float) * (size_t)(m->hidden + m->vocab));
  int32_t t, i, status = h != NULL ? MKBENCH_OK : fail(e, "no memory for a step");
  for (t = 0; status == MKBENCH_OK && t < n; ++t) {
    float* row = logits != NULL ? logits + (size_t)t * (size_t)m->vocab : h + m->hidden;
    const int32_t input = forced != NULL ? forced[t] : t > 0 ? ids[t - 1] : e->pending;
    status = step(e, input, e->position + t, h);
    rms_norm(h, e->final_norm, h, m->hidden, m->rms_norm_eps);
    multiply(e->head, h, row, m->vocab, m->hidden, 0);
    ids[t] = 0;
    for (i = 1; i < m->vocab; ++i) {
      if (row[i] > row[ids[t]]) ids[t] = i;
    }
  }
  free(h);
  return status;
}
