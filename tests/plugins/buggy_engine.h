// buggy_decoder.h as an engine, for CUDA where nvcc compiles it, else for the CPU.
// NAIVE_BUG: the bug, none if unset. NAIVE_IDS: if set, the engine shows no logits.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string>
#include <vector>

#include "references/step_engine.h"
#include "tests/plugins/buggy_decoder.h"

namespace buggy {

inline Bug bug_of_environment() {
  static const char* const names[] = {
      "none",
#define BUG(name, model, fits, text) #name,
#include "tests/plugins/bugs.inc"
#undef BUG
  };
  const char* wanted = std::getenv("NAIVE_BUG");
  if (wanted == nullptr) return Bug::none;
  for (size_t i = 0; i < sizeof names / sizeof *names; ++i) {
    if (std::string(names[i]) == wanted) return Bug(i);
  }
  throw mkbench_step::Unfit(std::string("NAIVE_BUG: found ") + wanted +
                            ", wanted a name of bugs.inc");
}

// RoPE's frequencies, scaled as the model says.
inline std::vector<float> frequencies_of(const mkbench_model& m, Bug bug) {
  std::vector<float> all;
  const auto theta = float(bug == Bug::rope_theta ? 1e4 : m.rope_theta);
  const bool scaled = bug != Bug::rope_unscaled && m.rope_scaling == MKBENCH_ROPE_LLAMA3;
  const double turn = bug == Bug::rope_scaling_turns ? 1 : 2 * std::acos(-1.0);
  const int width = bug == Bug::rope_exponent_hidden ? m.hidden : m.head_dim;
  for (int i = 0; i < m.head_dim; i += 2) {
    const float exponent = float(bug == Bug::rope_exponent ? i / 2 : i) / float(width);
    float f = 1 / std::pow(theta, exponent);
    const double waves = m.rope_original_positions * double(f) / turn;
    const double share =
        (waves - m.rope_low_freq_factor) / (m.rope_high_freq_factor - m.rope_low_freq_factor);
    double kept = std::min(1.0, std::max(0.0, share));
    if (bug == Bug::rope_scaling_linear) kept = 0;
    if (scaled) f = float((1 - kept) * f / m.rope_factor + kept * f);
    all.push_back(f);
  }
  if (bug == Bug::frequencies_reversed) std::reverse(all.begin(), all.end());
  return all;
}

struct Engine : mkbench_step::Step {
  static constexpr const char* name =
      mkbench_step::kDevice == MKBENCH_DEVICE_CPU ? "buggy-cpu" : "buggy-cuda";
  static constexpr int32_t precision = MKBENCH_PRECISION_FP32_ACCUMULATE;

  Decoder d{};
  std::vector<mkbench_step::Memory<float>> memory;
  mkbench_step::Memory<Layer> layers;
  mkbench_step::Memory<int32_t> id;
  float* unasked_logits;
  int prompt = 0;

  float* make(size_t count) {
    memory.push_back(mkbench_step::make<float>(count));
    const std::vector<float> zeros(count);
    mkbench_step::copy(memory.back().get(), zeros.data(), count * sizeof(float));
    return memory.back().get();
  }

  void open(const mkbench_model& m, const mkbench_step::Tensors& tensors) {
    if (m.norm_offset != 0 || m.activation != MKBENCH_SILU || m.embedding_multiplier != 0 ||
        m.rope_scaling == MKBENCH_ROPE_LINEAR)
      throw mkbench_step::Unfit(
          "model: wanted a Qwen3, a Qwen2, or a Llama without linear RoPE scaling");
    const mkbench_step::Weights<> w(m, tensors);
    layers = mkbench_step::make<Layer>(w.layers.size());
    mkbench_step::copy(layers.get(), w.layers.data(), w.layers.size() * sizeof(Layer));
    id = mkbench_step::make<int32_t>(1);
    d.m = m, d.bug = bug_of_environment(), d.rows = tensors.args.max_context;
    d.embedding = w.embedding, d.head = w.head, d.final_norm = w.final_norm;
    d.layers = layers.get();
    const size_t width = size_t(m.kv_heads) * m.head_dim;
    for (float** cache : {&d.keys, &d.values}) *cache = make((m.layers + 1) * d.rows * width);
    for (float** vector : {&d.h, &d.x}) *vector = make(m.hidden);
    for (float** vector : {&d.k, &d.v}) *vector = make(width);
    d.q = make(std::max(m.heads * m.head_dim, m.hidden));
    d.mixed = make(size_t(m.heads) * m.head_dim);
    for (float** vector : {&d.gate, &d.up}) *vector = make(m.intermediate);
    for (float** row : {&d.logits, &unasked_logits}) *row = make(m.vocab);
    d.scores = make(size_t(m.heads) * d.rows);
    const std::vector<float> frequencies = frequencies_of(m, d.bug);
    std::vector<float> turns;
    for (int p = 0; p < d.rows + 2; ++p) {
      for (const float f : frequencies) {
        turns.push_back(float(std::cos(double(f * float(p)))));
        turns.push_back(float(std::sin(double(f * float(p)))));
      }
    }
    float* table = make(turns.size());
    mkbench_step::copy(table, turns.data(), turns.size() * sizeof(float));
    d.turns = table;
  }

  // The ids of a prompt but its last one.
  void prefill(const int32_t* tokens, int32_t n) {
    prompt = n;
    for (int32_t i = 0; i < n; ++i) run(tokens[i], i, nullptr, nullptr);
  }

  int32_t step(int32_t token, int32_t position, float* logits) {
    if (position == 0) prompt = 0;
    run(token, position, logits != nullptr ? logits : unasked_logits, id.get());
    int32_t next = 0;
    mkbench_step::copy(&next, id.get(), sizeof next);
    return next;
  }

  void run(int32_t token, int32_t position, float* logits, int32_t* next) const {
#ifdef __CUDACC__
    run_step<<<1, 512>>>(d, token, position, prompt, logits, next);
#else
    run_step(d, token, position, prompt, logits, next);
#endif
  }
};

}  // namespace buggy

const mkbench_engine_abi* mkbench_engine_table(void) {
  static const mkbench_engine_abi table = [] {
    mkbench_engine_abi t = mkbench_step::table<buggy::Engine>();
    if (std::getenv("NAIVE_IDS") != nullptr) t.can &= ~uint32_t{MKBENCH_CAN_LOGITS};
    return t;
  }();
  return &table;
}
