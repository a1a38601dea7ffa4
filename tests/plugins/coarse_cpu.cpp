// The engine of step_cpu.cpp with coarse weights, which it says (--truth dequantised).
#include "references/step_engine.h"

#pragma push_macro("MKBENCH_STEP_ENGINE")
#undef MKBENCH_STEP_ENGINE
#define MKBENCH_STEP_ENGINE(engine)
#include "tests/plugins/step_cpu.cpp"
#pragma pop_macro("MKBENCH_STEP_ENGINE")

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>

namespace {

// Keeps the weights of down in kSteps steps of the largest of all.
struct Coarse : Foreign {
  static constexpr float kSteps = 7;

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
        const float value = std::round(widened(bits) / largest * kSteps) * largest / kSteps;
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
  // They are kept in bf16 all the same.
  const mkbench_storage* storage(const char* weight) {
    kept = {sizeof kept, MKBENCH_BF16, 0, 0, 0, 0, 0};
    for (size_t i = 0; i < names.size(); ++i)
      if (names[i] == weight) kept.bytes = downs[i].size() * sizeof(uint16_t);
    return &kept;
  }
  mkbench_storage kept;
};

}  // namespace

MKBENCH_STEP_ENGINE(Coarse)
