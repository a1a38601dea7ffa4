// A decoder of another project, foreign_decoder.h, as an engine of mkbench:
//
//     g++ -O3 -shared -fPIC -I<mkbench's folder> step_cpu.cpp -o engine.so
#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
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

#ifdef STEP_COARSE
// Keeps the weights of down in STEP_COARSE steps of the largest of all.
struct Coarse : Foreign {
  std::vector<std::string> names;
  std::vector<std::vector<uint16_t>> downs;

  static float widened(uint16_t bits) {
    const uint32_t wide = uint32_t{bits} << 16;
    float value = 0;
    std::memcpy(&value, &wide, sizeof value);
    return value;
  }
  void open(const mkbench_model& m, const mkbench_step::Tensors& tensors) {
    Foreign::open(m, tensors);
    for (size_t i = 0; i < layers.size(); ++i) {
      names.push_back("model.layers." + std::to_string(i) + ".mlp.down_proj.weight");
      std::vector<uint16_t>& down = downs.emplace_back(
          layers[i].down, layers[i].down + size_t(m.hidden) * size_t(m.intermediate));
      float largest = 0;
      for (const uint16_t bits : down) largest = std::max(largest, std::fabs(widened(bits)));
      for (uint16_t& bits : down) {
        const float value =
            std::round(widened(bits) / largest * STEP_COARSE) * largest / STEP_COARSE;
        uint32_t wide = 0;
        std::memcpy(&wide, &value, sizeof wide);
        bits = uint16_t(wide >> 16);
      }
      layers[i].down = down.data();
    }
  }
  bool dequantised(const char* weight, float* out) const {
    for (size_t i = 0; i < names.size(); ++i) {
      if (names[i] != weight) continue;
      for (const uint16_t bits : downs[i]) *out++ = widened(bits);
      return true;
    }
    return false;
  }
};
using Engine = Coarse;
#else
using Engine = Foreign;
#endif

}  // namespace

MKBENCH_STEP_ENGINE(Engine)
