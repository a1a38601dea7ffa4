// How the analytic checkpoint lays codewords out in a model's tensors: what synthetic_rows.cpp
// computes every row from. synthetic.h describes the checkpoint as a whole.
#pragma once

#include <cstdint>
#include <vector>

#include "references/model/architecture.h"
#include "references/synthetic.h"

// Compile what includes this with -ffp-contract=off: the bytes are specified with product and sum
// rounded separately. scripts/synthetic_checkpoint.py makes the same bytes by the same expressions.

namespace mkbench {

// Numbers of tensors: 1 embedding, then those that a layer has, in this order; the final norm, an
// untied head.
inline constexpr int kEmbeddingNumber = 1, kFirstLayerNumber = 2;
enum class LayerTensor {
  kN1,
  kN2,
  kQ,
  kK,
  kV,
  kO,
  kQNorm,
  kKNorm,
  kGate,
  kUp,
  kDown,
  kQBias,
  kKBias,
  kVBias
};

// The residual stream: channel 0 is constant, then comes slot A with the token's codeword, then
// slot B, into which a planted layer copies an earlier position's codeword. A wider model holds
// each sign in several neighbouring channels (SyntheticDesign::copies), so that a channel's sign and
// noise, and with them every amplitude below, are the same for every shape.
inline constexpr int kCode = 480;
inline constexpr int kCodeHidden =
    1024;  // the hidden width for which one copy of the signs is enough
inline constexpr int kSlotA = 1;
static_assert(kSlotA + 2 * kCode <= kCodeHidden);
inline constexpr double kUnit = 1.0 / 32;  // magnitude of a codeword sign
inline constexpr double kConst = 8.0;      // value of the constant channel, in units of kUnit

// Designed deviation, in units of kUnit, of the noise that attention and the MLP add to a channel
// of the residual and that the embedding holds. Measured in HF's fp32 run on `short` (2026-11-22):
// attention adds 0.05 to 0.07, the MLP 0.06 to 0.07.
inline constexpr double kSigmaAttention = 0.08, kSigmaMlp = 0.06, kSigmaEmbed = 0.125;
inline constexpr double kDeviation = 73.9;  // standard deviation of 256 equally likely levels
inline constexpr double kNormNoise = 0.07;
// For a width of kCodeHidden, about 1 / sqrt(hidden): a row of pure noise turns a normed input into
// a value of deviation 0.95. SyntheticDesign::projection_noise keeps that deviation for other widths.
inline constexpr double kProjectionNoise = 0.03;

// Factors on the noise of planted rows and columns: over 0, so that no tensor holds zeros, and so
// small that no planted weight drowns. The figures are from layers 4, 5, 12, 27 of the run above.
// Planted rows of q and k: noise of 1.1 % of the planted values (0.118 beside 10.4), which scores
// tolerate because query and key have many dimensions.
inline constexpr double kWaveNoise = 0.13;
// Planted rows of v, gate and up: noise of 2.1 % of a sign (0.029 beside 1.35). Each channel of a
// codeword is decided by itself, and the sign switch amplifies its noise.
inline constexpr double kSignNoise = 0.03;
// Columns of o that read planted heads multiply values of 1.35, the others 0.7: with the factor
// below the former add 0.032 units of noise, the others 0.058.
inline constexpr double kSlotColumnNoise = 0.3;
// Columns of down that read planted units multiply values of 5.7 to 8.6, the others 0.55: with the
// factor below the former add 0.04 units of noise, the others 0.04 to 0.05.
inline constexpr double kPlantedUnitNoise = 0.1;
// Root mean square of what the noise of o and down multiplies: outputs of noise heads (0.69
// measured in planted layers, 0.43 in others) and of noise units of the SwiGLU (0.53 to 0.55).
inline constexpr double kAttentionRms = 0.7, kUnitRms = 0.55;

// Planted attention: the first kv heads with their query heads carry the codeword signs, 120 a head or,
// where head_dim has no room for them, 60; a planted query and key use 20 of RoPE's frequencies.
inline constexpr int kSignsPerHead[] = {120, 60};
inline constexpr int kFrequencies = 20;
// Weights of q_norm and k_norm. With 2.0 a planted score peaks at 2 * 2 * sqrt(head_dim) = 45.
inline constexpr double kPlantedNorm = 2.0, kOrdinaryNorm = 1.25;
// Without QK-norm the projections make that peak. Computed: the next position's score is 6.1 lower
// with heads of 64 (8.4 with 128 and theta 1e6), and the other positions together take at most 0.5 %
// of the weight, up to 131,072 of them.
inline constexpr double kPlantedScore = 45;
// Without QK-norm a score also scales with the key's length, which differs by up to 7 % from
// position to position: 3 of 45, half of what sets the next position apart. So the last pairs, which
// RoPE hardly turns, subtract a part of kPlantedScore from every score: the peak is 9, its distance
// to the other scores stays, and 7 % of it is 0.6. Without it D of Llama-3.2-1B is 2.4.
inline constexpr int kFlatPairs = 4;
inline constexpr double kFlatShare = 0.8;
static_assert(kFrequencies + kFlatPairs <= kSignsPerHead[1] / 2);
// Deviation of biases, beside which a row of pure noise gives 0.95.
inline constexpr double kBiasNoise = 0.5;

// The planted MLP computes slot A times the sign in slot B, as the difference of two SiLUs of slope
// kGain whose edges are at -kSwitch and kSwitch, in units of a sign.
inline constexpr double kSwitch = 0.5, kGain = 8.0;

// The quantities that the rows of all tensors share.
struct SyntheticDesign {
  ModelShape shape;
  Rope rope;
  bool tied;
  int copies;               // channels that hold one sign
  int width;                // channels of a slot
  int slot_b;               // the first channel of slot B; slot A begins at kSlotA
  double projection_noise;  // deviation of the noise in rows that read the normed hidden state
  int signs;                // codeword signs that a planted head carries
  int planted_heads;        // kv heads of a planted layer that carry them: the first ones
  StateCode code;
  uint64_t noise_key;                // of noise_word(); follows from the salt
  std::vector<LayerTensor> tensors;  // of a layer, in LayerWeights' order

  // An untied head holds the codewords with opposite signs, and the last layer's shift negates
  // slot A to match: an engine that takes the embedding for the head decodes wrong tokens.
  double head_sign() const { return tied ? 1 : -1; }

  // In a small vocabulary the 32 largest logits lie further apart, and a bf16 decoder's error grows
  // with that. Halving the logits keeps D under 0.5 (Qwen3-TTS's talker: 0.76 without).
  double final_norm() const { return (code.small() ? 0.5 : 1.0) / copies; }
};

// The quantities of one layer that its rows are computed from.
struct SyntheticLayer {
  int lag = 0;                 // 0 = not planted
  bool shift = false;          // the last layer: its MLP makes one LFSR step
  double rms1 = 0, rms2 = 0;   // rms of the residual before attention and before the MLP
  std::vector<double> n1, n2;  // the two norms' weights, as stored
  // The factor on planted rows of q and k that sets the score; 1 with QK-norm, which sets it there.
  double wave = 1;
  std::vector<double> query, key;  // of planted heads, [head_dim]
};

// The byte of a flat index within a word of splitmix64, little-endian on every machine.
inline uint32_t noise_level(uint64_t word, int64_t index) {
  return static_cast<uint32_t>(word >> (8 * (index & 7))) & 0xffu;
}

inline uint64_t noise_word(uint64_t key, int tensor, int64_t index) {
  return splitmix64(key ^
                    ((static_cast<uint64_t>(tensor) << 40) + static_cast<uint64_t>(index >> 3)));
}

inline Bf16 synthetic_element(float scale, uint32_t level, float plant) {
  const float product = scale * (static_cast<float>(level) - 127.5f);
  return to_bf16(product + plant);
}

// Throws Error(kBadInput) naming the field where a shape has no room for the codewords.
SyntheticDesign design_synthetic(const ShapeRow& row, uint64_t salt = 0);
// `lags` of layers that the design does not have are ignored.
std::vector<SyntheticLayer> plan_synthetic_layers(const SyntheticDesign& design, const Lags& lags);

}  // namespace mkbench
