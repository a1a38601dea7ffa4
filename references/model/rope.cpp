#include "references/model/rope.h"

#include <fmt/format.h>

#include <cmath>
#include <numbers>

namespace mkbench {

void scale_frequencies(const Rope& rope, std::span<float> frequencies) {
  const auto factor = static_cast<float>(rope.factor);
  if (rope.scaling == RopeScaling::kLinear) {
    for (float& f : frequencies) f /= factor;
  }
  if (rope.scaling != RopeScaling::kLlama3) return;
  const double positions = rope.original_positions;
  const auto longest = static_cast<float>(positions / rope.low_freq_factor);
  const auto shortest = static_cast<float>(positions / rope.high_freq_factor);
  const auto low = static_cast<float>(rope.low_freq_factor);
  const auto range = static_cast<float>(rope.high_freq_factor - rope.low_freq_factor);
  for (float& f : frequencies) {
    // torch divides a number by a tensor as the tensor's reciprocal times the number.
    const float wave = 1 / f * static_cast<float>(2 * std::numbers::pi);
    if (wave < shortest) continue;
    if (wave > longest) {
      f /= factor;
      continue;
    }
    const float smooth = (1 / wave * static_cast<float>(positions) - low) / range;
    f = (1 - smooth) * f / factor + smooth * f;
  }
}

std::vector<float> inverse_frequencies(const Rope& rope, int head_dim) {
  std::vector<float> frequencies;
  for (int i = 0; i < head_dim; i += 2) {
    const float exponent = static_cast<float>(i) / static_cast<float>(head_dim);
    frequencies.push_back(1.0f / std::pow(static_cast<float>(rope.theta), exponent));
  }
  scale_frequencies(rope, frequencies);
  return frequencies;
}

std::string scaling_text(const Rope& rope) {
  if (rope.scaling == RopeScaling::kNone) return {};
  const std::string text = fmt::format("{}, factor {}", rope_type(rope.scaling), rope.factor);
  if (rope.scaling != RopeScaling::kLlama3) return text;
  return text + fmt::format(
                    ", low_freq_factor {}, high_freq_factor {}, "
                    "original_max_position_embeddings {}",
                    rope.low_freq_factor, rope.high_freq_factor, rope.original_positions);
}

}  // namespace mkbench
