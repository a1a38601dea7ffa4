#include "references/synthetic_plan.h"

#include <array>
#include <cmath>
#include <string>

#include "references/base/error.h"
#include "references/model/rope.h"

namespace mkbench {
namespace {

// Planted query and key rows read the constant channel alone, so a score depends on the distance of
// two positions only, and peaks at `lag`.
void plan_attention(const SyntheticDesign& d, SyntheticLayer& plan) {
  const int head_dim = d.shape.head_dim;
  plan.query.assign(static_cast<size_t>(head_dim), 0);
  plan.key.assign(static_cast<size_t>(head_dim), 0);
  if (!d.shape.qk_norm)
    plan.wave =
        std::sqrt(kPlantedScore / std::sqrt(static_cast<double>(head_dim))) * plan.rms1 / kConst;
  std::array<double, kFrequencies> energy{};
  double sum = 0;
  for (int i = 0; i < kFrequencies; ++i) {
    energy[static_cast<size_t>(i)] = std::exp(-2.0 * i / 10.0);
    sum += energy[static_cast<size_t>(i)];
  }
  for (int i = 0; i < kFrequencies; ++i) {
    const size_t k = static_cast<size_t>(i);
    const double amplitude = std::sqrt(energy[k] / sum * head_dim) * plan.wave;
    const double frequency =
        scaled_frequency(d.rope, std::pow(d.rope.theta, -i / (head_dim / 2.0)));
    const double angle = plan.lag * frequency;
    plan.query[k] = amplitude;
    plan.key[k] = amplitude * std::cos(angle);
    plan.key[k + static_cast<size_t>(head_dim / 2)] = amplitude * std::sin(angle);
  }
  if (d.shape.qk_norm) return;
  const double flat = std::sqrt(kFlatShare / kFlatPairs * head_dim) * plan.wave;
  const size_t pairs = static_cast<size_t>(head_dim / 2);
  for (size_t k = pairs - kFlatPairs; k < pairs; ++k) plan.query[k] = flat, plan.key[k] = -flat;
}

std::vector<double> norm_weights(const SyntheticDesign& d, int tensor) {
  std::vector<double> out(static_cast<size_t>(d.shape.hidden));
  const float scale = static_cast<float>(kNormNoise / kDeviation);
  for (int64_t i = 0; i < d.shape.hidden; ++i) {
    const uint32_t level = noise_level(noise_word(d.noise_key, tensor, i), i);
    out[static_cast<size_t>(i)] =
        static_cast<double>(to_float(synthetic_element(scale, level, 1.0f)));
  }
  return out;
}

[[noreturn]] void no_room(const ShapeRow& row, const char* field, int found, int wanted) {
  throw Error(ErrorKind::kBadInput, "synthetic:" + std::string(row.name) + ": " + field + " is " +
                                        std::to_string(found) + ", wanted at least " +
                                        std::to_string(wanted));
}

std::vector<LayerTensor> layer_tensors(const ModelShape& shape) {
  using enum LayerTensor;
  std::vector<LayerTensor> all = {kN1, kN2, kQ, kK, kV, kO};
  if (shape.qk_norm) all.insert(all.end(), {kQNorm, kKNorm});
  all.insert(all.end(), {kGate, kUp, kDown});
  if (shape.qkv_bias) all.insert(all.end(), {kQBias, kKBias, kVBias});
  return all;
}

}  // namespace

SyntheticDesign design_synthetic(const ShapeRow& row, uint64_t salt) {
  const ModelShape& shape = row.shape;
  const auto need = [&](const char* field, int found, int wanted) {
    if (found < wanted) no_room(row, field, found, wanted);
  };
  need("layers", shape.layers, 1);
  need("hidden", shape.hidden, kCodeHidden);
  const int copies = shape.hidden / kCodeHidden, width = kCode * copies;
  need("intermediate", shape.intermediate, 3 * width);
  const int signs = kSignsPerHead[shape.head_dim < kSignsPerHead[0]];
  need("head_dim", shape.head_dim, signs);
  need("kv_heads", shape.kv_heads, kCode / signs);
  return {.shape = shape,
          .rope = synthetic_config(row).rope,
          .tied = row.tied,
          .copies = copies,
          .width = width,
          .slot_b = kSlotA + width,
          .projection_noise = kProjectionNoise * std::sqrt(double{kCodeHidden} / shape.hidden),
          .signs = signs,
          .planted_heads = kCode / signs,
          .code = StateCode(shape.vocab, salt),
          .noise_key = salt == 0 ? 0 : splitmix64(~salt),
          .tensors = layer_tensors(shape)};
}

std::string synthetic_obstacle(const ShapeRow& row) {
  try {
    design_synthetic(row);
    return {};
  } catch (const Error& error) {
    return error.what();
  }
}

std::vector<SyntheticLayer> plan_synthetic_layers(const SyntheticDesign& d, const Lags& lags) {
  const int layers = d.shape.layers, hidden = d.shape.hidden;
  std::vector<SyntheticLayer> plans(static_cast<size_t>(layers));
  const double base = kConst * kConst + d.width + hidden * (kSigmaEmbed * kSigmaEmbed);
  double variance = 0;  // of the noise that sublayers have added so far, in units squared
  for (int l = 0; l < layers; ++l) {
    SyntheticLayer& plan = plans[static_cast<size_t>(l)];
    const auto lag = lags.find(l);
    const int first = kFirstLayerNumber + l * static_cast<int>(d.tensors.size());
    plan.shift = l == layers - 1;
    plan.lag = lag == lags.end() || plan.shift ? 0 : lag->second;
    plan.n1 = norm_weights(d, first);
    plan.n2 = norm_weights(d, first + 1);
    plan.rms1 = std::sqrt(base / hidden + variance);
    variance += kSigmaAttention * kSigmaAttention;
    plan.rms2 = std::sqrt((base + (plan.lag ? d.width : 0)) / hidden + variance);
    variance += kSigmaMlp * kSigmaMlp;
    if (plan.lag) plan_attention(d, plan);
  }
  return plans;
}

}  // namespace mkbench
