// A whole kernel for the engine of `mkbench new-engine DIR cuda`: tests/cli/test_new_engine.py puts it between "Your kernel
// begins" and "ends", behind the kernels of tests/plugins/naive_cuda.cu, which it launches one position at a time.
#include <cmath>

int blocks_for(int n) { return (n + kThreads - 1) / kThreads; }

// Memory of one call: floats on the card, and the cosines and sines of its positions.
struct Scratch {
  float* floats = nullptr;
  float2* turns = nullptr;
  ~Scratch() {
    cudaFree(floats);
    cudaFree(turns);
  }
};

// Room for a step of `e` in `s`, and the turns of n positions from e->position on.
int32_t prepare(mkbench_engine* e, int32_t n, Scratch& s) {
  const mkbench_model& m = e->m;
  const size_t q_width = size_t(m.heads) * m.head_dim, kv_width = size_t(m.kv_heads) * m.head_dim;
  const size_t count = 2 * size_t(m.hidden) + 2 * q_width + 2 * kv_width +
                       2 * size_t(m.intermediate) + size_t(m.vocab) +
                       size_t(m.heads) * e->max_context;
  std::vector<float2> table;
  for (int32_t p = e->position; p < e->position + n; ++p) {
    for (int i = 0; i < m.head_dim; i += 2) {
      const float angle =
          1 / std::pow(float(m.rope_theta), float(i) / float(m.head_dim)) * float(p);
      table.push_back({float(std::cos(double(angle))), float(std::sin(double(angle)))});
    }
  }
  CHECK(e, cudaMalloc(&s.floats, count * sizeof(float)));
  CHECK(e, cudaMalloc(&s.turns, table.size() * sizeof(float2)));
  CHECK(e,
        cudaMemcpy(s.turns, table.data(), table.size() * sizeof(float2), cudaMemcpyHostToDevice));
  return MKBENCH_OK;
}

// Runs one id (device memory), the t-th of this call: writes its KV rows. Returns scratch with the normed final hidden
// vector; room for a row of logits follows it.
float* step(mkbench_engine* e, const int32_t* id, int32_t t, const Scratch& s) {
  const mkbench_model& m = e->m;
  const int q_width = m.heads * m.head_dim, kv_width = m.kv_heads * m.head_dim,
            at = e->position + t;
  const float2* turns = s.turns + size_t(t) * m.head_dim / 2;
  float *x = s.floats, *logits = x + m.hidden, *h = logits + m.vocab, *q = h + m.hidden,
        *k = q + q_width;
  float *v = k + kv_width, *mixed = v + kv_width, *gate = mixed + q_width,
        *up = gate + m.intermediate;
  float* scores = up + m.intermediate;
  const auto eps = float(m.rms_norm_eps);
  const auto product = [](const Bf16* w, const float* in, float* out, int rows, int cols) {
    multiply<false><<<blocks_for(32 * rows), kThreads>>>(w, in, out, rows, cols);
  };
  const auto add_product = [](const Bf16* w, const float* in, float* out, int rows, int cols) {
    multiply<true><<<blocks_for(32 * rows), kThreads>>>(w, in, out, rows, cols);
  };
  embed<<<blocks_for(m.hidden), kThreads>>>(e->embedding, id, h, m.hidden);
  for (size_t i = 0; i < e->layers.size(); ++i) {
    const Layer& l = e->layers[i];
    Bf16* keys = e->keys + i * e->max_context * kv_width;
    Bf16* values = e->values + i * e->max_context * kv_width;
    rms_norm<<<1, kThreads>>>(h, l.input_norm, x, m.hidden, eps);
    product(l.q, x, q, q_width, m.hidden);
    product(l.k, x, k, kv_width, m.hidden);
    product(l.v, x, v, kv_width, m.hidden);
    rms_norm<<<m.heads, kThreads>>>(q, l.q_norm, q, m.head_dim, eps);
    rms_norm<<<m.kv_heads, kThreads>>>(k, l.k_norm, k, m.head_dim, eps);
    rotate<<<m.heads, m.head_dim / 2>>>(q, turns);
    rotate<<<m.kv_heads, m.head_dim / 2>>>(k, turns);
    store_row<<<blocks_for(kv_width), kThreads>>>(k, keys + size_t(at) * kv_width, kv_width);
    store_row<<<blocks_for(kv_width), kThreads>>>(v, values + size_t(at) * kv_width, kv_width);
    attention<<<m.heads, kThreads>>>(q, keys, values, scores, mixed, at + 1, e->max_context,
                                     m.head_dim, m.heads / m.kv_heads, m.kv_heads);
    add_product(l.o, mixed, h, m.hidden, q_width);
    rms_norm<<<1, kThreads>>>(h, l.post_norm, x, m.hidden, eps);
    product(l.gate, x, gate, m.intermediate, m.hidden);
    product(l.up, x, up, m.intermediate, m.hidden);
    swiglu<<<blocks_for(m.intermediate), kThreads>>>(gate, up, m.intermediate);
    add_product(l.down, gate, h, m.hidden, m.intermediate);
  }
  rms_norm<<<1, kThreads>>>(h, e->final_norm, x, m.hidden, eps);
  return x;
}

int32_t prefill_rows(mkbench_engine* e, const int32_t* ids, int32_t n) {
  Scratch scratch;
  const int32_t status = prepare(e, n, scratch);
  for (int32_t t = 0; status == MKBENCH_OK && t < n; ++t) step(e, ids + t, t, scratch);
  return status;
}

int32_t decode_steps(mkbench_engine* e, int32_t n, const int32_t* forced, int32_t* ids,
                     float* logits) {
  const mkbench_model& m = e->m;
  Scratch scratch;
  const int32_t status = prepare(e, n, scratch);
  for (int32_t t = 0; status == MKBENCH_OK && t < n; ++t) {
    float* x = step(e, forced != nullptr ? forced + t : e->pending, t, scratch);
    float* row = logits != nullptr ? logits + size_t(t) * m.vocab : x + m.hidden;
    multiply<false><<<blocks_for(32 * m.vocab), kThreads>>>(e->head, x, row, m.vocab, m.hidden);
    argmax<<<1, kArgmaxThreads>>>(row, m.vocab, ids + t, e->pending);
  }
  return status;
}
