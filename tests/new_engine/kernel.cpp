// A whole kernel for the engine of `mkbench new-engine DIR cpp`, used as kernel.c is.

void Mine::steps(const int32_t* token, int32_t position, int32_t n, int32_t* ids, float* logits) {
  std::vector<foreign_layer> layers;
  for (const auto& l : weights.layers)
    layers.push_back(
        {l.input_norm, l.q, l.k, l.v, l.o, l.q_norm, l.k_norm, l.post_norm, l.gate, l.up, l.down});
  foreign_decoder d = {m.hidden,     m.intermediate, m.layers,          m.heads,
                       m.kv_heads,   m.head_dim,     m.vocab,           max_context,
                       m.rope_theta, m.rms_norm_eps, weights.embedding, weights.final_norm,
                       weights.head, layers.data(),  keys.get(),        values.get(),
                       nullptr};
  std::vector<float> scratch(foreign_scratch(&d));
  d.scratch = scratch.data();
  for (int32_t t = 0; t < n; ++t)
    ids[t] = foreign_step(&d, t == 0 ? *token : ids[t - 1], position + t,
                          logits != nullptr ? logits + size_t(t) * m.vocab : nullptr);
}
