// A decoder of another project, foreign_decoder.h, as an engine of mkbench:
//
//     g++ -O3 -shared -fPIC -I<mkbench's folder> step_cpu.cpp -o engine.so
#include <vector>

#include "references/step_engine.h"
#include "tests/plugins/foreign_decoder.h"

namespace {

struct Foreign : mkbench_step::Step {
  static constexpr const char* name = "step-cpu";
  static constexpr int32_t precision = MKBENCH_PRECISION_FP32_ACCUMULATE;

  foreign_decoder decoder = {};
  std::vector<foreign_layer> layers;
  std::vector<uint16_t> keys, values;
  std::vector<float> scratch;

  void open(const mkbench_model& m, const mkbench_step::Tensors& tensors) {
    if (const char* why = mkbench_unlike_qwen3(&m)) throw mkbench_step::Unfit(why);
    const mkbench_step::Weights<> w(m, tensors);
    for (const auto& l : w.layers)
      layers.push_back({l.input_norm, l.q, l.k, l.v, l.o, l.q_norm, l.k_norm, l.post_norm, l.gate,
                        l.up, l.down});
    decoder = {m.hidden,     m.intermediate, m.layers,    m.heads,
               m.kv_heads,   m.head_dim,     m.vocab,     tensors.args.max_context,
               m.rope_theta, m.rms_norm_eps, w.embedding, w.final_norm,
               w.head,       layers.data(),  nullptr,     nullptr,
               nullptr};
    keys.resize(size_t(m.layers) * decoder.rows * m.kv_heads * m.head_dim);
    values.resize(keys.size());
    scratch.resize(foreign_scratch(&decoder));
    decoder.keys = keys.data();
    decoder.values = values.data();
    decoder.scratch = scratch.data();
  }

  int32_t step(int32_t token, int32_t position, float* logits) {
    return foreign_step(&decoder, token, position, logits);
  }
};

}  // namespace

MKBENCH_STEP_ENGINE(Foreign)
