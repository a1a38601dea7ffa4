#include "references/model/rope.h"

#include <fmt/format.h>

#include <cmath>
#include <numbers>

namespace mkbench {

namespace {

template <typename T>
T scaled(const Rope& rope, T f) {
  const auto factor = static_cast<T>(rope.factor);
  if (rope.scaling == RopeScaling::kLinear) return f / factor;
  if (rope.scaling != RopeScaling::kLlama3) return f;
  const double positions = rope.original_positions;
  const auto longest = static_cast<T>(positions / rope.low_freq_factor);
  const auto shortest = static_cast<T>(positions / rope.high_freq_factor);
  const auto low = static_cast<T>(rope.low_freq_factor);
  const auto range = static_cast<T>(rope.high_freq_factor - rope.low_freq_factor);
  // torch divides a number by a tensor as the tensor's reciprocal times the number.
  const T wave = 1 / f * static_cast<T>(2 * std::numbers::pi);
  if (wave < shortest) return f;
  if (wave > longest) return f / factor;
  const T smooth = (1 / wave * static_cast<T>(positions) - low) / range;
  return (1 - smooth) * f / factor + smooth * f;
}

}  // namespace

void scale_frequencies(const Rope& rope, std::span<float> frequencies) {
  for (float& f : frequencies) f = scaled(rope, f);
}

double scaled_frequency(const Rope& rope, double frequency) { return scaled(rope, frequency); }

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
