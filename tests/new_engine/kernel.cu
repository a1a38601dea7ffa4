// A whole kernel for the engine of `mkbench new-engine DIR cuda`: tests/cli/test_new_engine.py puts it between "Your kernel
// begins" and "ends", behind the kernels of tests/plugins/naive_cuda.cu, which it launches one position at a time.
#include <cmath>

int blocks_for(int n) { return (n + kThreads - 1) / kThreads; }

// Runs one id (device memory) at position `at`: writes its KV rows. Leaves the normed final hidden vector at the begin of
// `floats`, scratch; room for a row of logits follows it. turns: the cosines and sines of `at`.
void run(Mine& e, const int32_t* id, int32_t at, float* floats, const float2* turns) {
  const mkbench_model& m = e.m;
  const int q_width = m.heads * m.head_dim, kv_width = m.kv_heads * m.head_dim;
  float *x = floats, *logits = x + m.hidden, *h = logits + m.vocab, *q = h + m.hidden,
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
  embed<<<blocks_for(m.hidden), kThreads>>>(e.weights.embedding, id, h, m.hidden);
  for (size_t i = 0; i < e.weights.layers.size(); ++i) {
    const auto& l = e.weights.layers[i];
    Bf16* keys = e.keys.get() + i * e.max_context * kv_width;
    Bf16* values = e.values.get() + i * e.max_context * kv_width;
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
    attention<<<m.heads, kThreads>>>(q, keys, values, scores, mixed, at + 1, e.max_context,
                                     m.head_dim, m.heads / m.kv_heads, m.kv_heads);
    add_product(l.o, mixed, h, m.hidden, q_width);
    rms_norm<<<1, kThreads>>>(h, l.post_norm, x, m.hidden, eps);
    product(l.gate, x, gate, m.intermediate, m.hidden);
    product(l.up, x, up, m.intermediate, m.hidden);
    swiglu<<<blocks_for(m.intermediate), kThreads>>>(gate, up, m.intermediate);
    add_product(l.down, gate, h, m.hidden, m.intermediate);
  }
  rms_norm<<<1, kThreads>>>(h, e.weights.final_norm, x, m.hidden, eps);
}

void Mine::steps(const int32_t* token, int32_t position, int32_t n, int32_t* ids, float* logits) {
  const size_t widths = size_t(m.heads + m.kv_heads) * m.head_dim;
  const auto floats = mkbench_step::make<float>(2 * (m.hidden + widths + m.intermediate) + m.vocab +
                                                size_t(m.heads) * max_context);
  std::vector<float2> table;
  for (int32_t p = position; p < position + n; ++p) {
    for (int i = 0; i < m.head_dim; i += 2) {
      const float angle =
          1 / std::pow(float(m.rope_theta), float(i) / float(m.head_dim)) * float(p);
      table.push_back({float(std::cos(double(angle))), float(std::sin(double(angle)))});
    }
  }
  const auto turns = mkbench_step::make<float2>(table.size());
  mkbench_step::copy(turns.get(), table.data(), table.size() * sizeof(float2));
  for (int32_t t = 0; t < n; ++t) {
    run(*this, t == 0 ? token : ids + t - 1, position + t, floats.get(),
        turns.get() + size_t(t) * m.head_dim / 2);
    float* row = logits != nullptr ? logits + size_t(t) * m.vocab : floats.get() + m.hidden;
    multiply<false><<<blocks_for(32 * m.vocab), kThreads>>>(weights.head, floats.get(), row,
                                                            m.vocab, m.hidden);
    argmax<<<1, kArgmaxThreads>>>(row, m.vocab, ids + t);
  }
}
