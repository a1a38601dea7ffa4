#include "references/synthetic_rows.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include "references/base/error.h"

// Compiled with -ffp-contract=off, because the bytes are specified with product and sum rounded
// separately. scripts/synthetic_checkpoint.py makes the same bytes by the same expressions.

namespace mkbench {

// The quantities that the rows of all tensors share.
struct SyntheticRows::Design {
  ModelShape shape;
  double theta;
  bool tied;
  int copies;               // channels that hold one sign
  int width;                // channels of a slot
  int slot_b;               // the first channel of slot B; slot A begins at kSlotA
  double projection_noise;  // deviation of the noise in rows that read the normed hidden state
  StateCode code;

  // An untied head holds the codewords with opposite signs, and the last layer's shift negates
  // slot A to match: an engine that takes the embedding for the head decodes wrong tokens.
  double head_sign() const { return tied ? 1 : -1; }

  // In a small vocabulary the 32 largest logits lie further apart, and a bf16 decoder's error grows
  // with that. Halving the logits keeps D under 0.5 (Qwen3-TTS's talker: 0.76 without).
  double final_norm() const { return (code.small() ? 0.5 : 1.0) / copies; }
};

// The quantities of one layer that its rows are computed from.
struct SyntheticRows::LayerPlan {
  int lag = 0;                     // 0 = not planted
  bool shift = false;              // the last layer: its MLP makes one LFSR step
  double rms1 = 0, rms2 = 0;       // rms of the residual before attention and before the MLP
  std::vector<double> n1, n2;      // the two norms' weights, as stored
  std::vector<double> query, key;  // of planted heads, [head_dim]
};

namespace {

using Design = SyntheticRows::Design;
using LayerPlan = SyntheticRows::LayerPlan;

// The residual stream: channel 0 is constant, then comes slot A with the token's codeword, then
// slot B, into which a planted layer copies an earlier position's codeword. A wider model holds
// each sign in several neighbouring channels (Design::copies), so that a channel's sign and noise,
// and with them every amplitude below, are the same for every shape.
constexpr int kCode = 480;
constexpr int kCodeHidden = 1024;  // the hidden width for which one copy of the signs is enough
constexpr int kSlotA = 1;
static_assert(kSlotA + 2 * kCode <= kCodeHidden);
constexpr double kUnit = 1.0 / 32;  // magnitude of a codeword sign
constexpr double kConst = 8.0;      // value of the constant channel, in units of kUnit

// Designed deviation, in units of kUnit, of the noise that attention and the MLP add to a channel
// of the residual and that the embedding holds. Measured in HF's fp32 run on `short` (2026-11-22):
// attention adds 0.05 to 0.07, the MLP 0.06 to 0.07.
constexpr double kSigmaAttention = 0.08, kSigmaMlp = 0.06, kSigmaEmbed = 0.125;
constexpr double kDeviation = 73.9;  // standard deviation of 256 equally likely levels
constexpr double kNormNoise = 0.07;
// For a width of kCodeHidden, about 1 / sqrt(hidden): a row of pure noise turns a normed input into
// a value of deviation 0.95. Design::projection_noise keeps that deviation for other widths.
constexpr double kProjectionNoise = 0.03;

// Factors on the noise of planted rows and columns: over 0, so that no tensor holds zeros, and so
// small that no planted weight drowns. The figures are from layers 4, 5, 12, 27 of the run above.
// Planted rows of q and k: noise of 1.1 % of the planted values (0.118 beside 10.4), which scores
// tolerate because query and key have many dimensions.
constexpr double kWaveNoise = 0.13;
// Planted rows of v, gate and up: noise of 2.1 % of a sign (0.029 beside 1.35). Each channel of a
// codeword is decided by itself, and the sign switch amplifies its noise.
constexpr double kSignNoise = 0.03;
// Columns of o that read planted heads multiply values of 1.35, the others 0.7: with the factor
// below the former add 0.032 units of noise, the others 0.058.
constexpr double kSlotColumnNoise = 0.3;
// Columns of down that read planted units multiply values of 5.7 to 8.6, the others 0.55: with the
// factor below the former add 0.04 units of noise, the others 0.04 to 0.05.
constexpr double kPlantedUnitNoise = 0.1;
// Root mean square of what the noise of o and down multiplies: outputs of noise heads (0.69
// measured in planted layers, 0.43 in others) and of noise units of the SwiGLU (0.53 to 0.55).
constexpr double kAttentionRms = 0.7, kUnitRms = 0.55;

// Planted attention: kv heads 0-3 with their query heads; each head carries 120 codeword signs;
// its planted query and key use 20 of RoPE's frequencies.
constexpr int kPlantedKvHeads = 4;
constexpr int kSignsPerHead = kCode / kPlantedKvHeads;
constexpr int kFrequencies = 20;
// Weights of q_norm and k_norm. With 2.0 a planted score peaks at 2 * 2 * sqrt(head_dim) = 45.
constexpr double kPlantedNorm = 2.0, kOrdinaryNorm = 1.25;

// The planted MLP computes slot A times the sign in slot B, as the difference of two SiLUs of slope
// kGain whose edges are at -kSwitch and kSwitch, in units of a sign.
constexpr double kSwitch = 0.5, kGain = 8.0;

// One row of a tensor: element c is bf16(scale[c] * (its noise_level() - 127.5) + plant[c]).
struct Row {
  explicit Row(int n) : scale(static_cast<size_t>(n)), plant(static_cast<size_t>(n)), cols(n) {}

  std::vector<float> scale, plant;
  int cols;

  void noise(int begin, int end, double factor) {
    std::fill(scale.begin() + begin, scale.begin() + end, static_cast<float>(factor / kDeviation));
  }
  void add(int col, double value) { plant[static_cast<size_t>(col)] = static_cast<float>(value); }
  // The element is exactly `value`, without noise.
  void set(int col, double value) {
    scale[static_cast<size_t>(col)] = 0;
    add(col, value);
  }
};

// The byte of a flat index within a word of splitmix64, little-endian on every machine.
uint32_t noise_level(uint64_t word, int64_t index) {
  return static_cast<uint32_t>(word >> (8 * (index & 7))) & 0xffu;
}

uint64_t noise_word(int tensor, int64_t index) {
  return splitmix64((static_cast<uint64_t>(tensor) << 40) + static_cast<uint64_t>(index >> 3));
}

Bf16 element(float scale, uint32_t level, float plant) {
  const float product = scale * (static_cast<float>(level) - 127.5f);
  return to_bf16(product + plant);
}

// Writes row `r`. A row starts on a multiple of 8 elements, because `cols` is a multiple of 8.
void write_row(const Row& row, int tensor, int r, Bf16* out) {
  const int64_t first = int64_t{r} * row.cols;
  for (int c = 0; c < row.cols; c += 8) {
    const uint64_t word = noise_word(tensor, first + c);
    for (int i = 0; i < 8; ++i) {
      const size_t k = static_cast<size_t>(c + i);
      out[k] = element(row.scale[k], noise_level(word, i), row.plant[k]);
    }
  }
}

// Numbers of tensors: 1 embedding, then 11 a layer in LayerWeights' order, final norm, untied head.
constexpr int kEmbedding = 1;
enum LayerTensor { kN1, kN2, kQ, kK, kV, kO, kQNorm, kKNorm, kGate, kUp, kDown, kPerLayer };
int tensor_number(int layer, LayerTensor t) { return 2 + kPerLayer * layer + t; }

// Planted query and key rows read the constant channel alone, so a score depends on the distance of
// two positions only, and peaks at `lag`.
void plan_attention(const Design& d, LayerPlan& plan) {
  const int head_dim = d.shape.head_dim;
  plan.query.assign(static_cast<size_t>(head_dim), 0);
  plan.key.assign(static_cast<size_t>(head_dim), 0);
  std::array<double, kFrequencies> energy{};
  double sum = 0;
  for (int i = 0; i < kFrequencies; ++i) {
    energy[static_cast<size_t>(i)] = std::exp(-2.0 * i / 10.0);
    sum += energy[static_cast<size_t>(i)];
  }
  for (int i = 0; i < kFrequencies; ++i) {
    const size_t k = static_cast<size_t>(i);
    const double amplitude = std::sqrt(energy[k] / sum * head_dim);
    const double angle = plan.lag * std::pow(d.theta, -i / (head_dim / 2.0));
    plan.query[k] = amplitude;
    plan.key[k] = amplitude * std::cos(angle);
    plan.key[k + static_cast<size_t>(head_dim / 2)] = amplitude * std::sin(angle);
  }
}

std::vector<double> norm_weights(const Design& d, int tensor) {
  std::vector<double> out(static_cast<size_t>(d.shape.hidden));
  const float scale = static_cast<float>(kNormNoise / kDeviation);
  for (int64_t i = 0; i < d.shape.hidden; ++i) {
    const uint32_t level = noise_level(noise_word(tensor, i), i);
    out[static_cast<size_t>(i)] = static_cast<double>(to_float(element(scale, level, 1.0f)));
  }
  return out;
}

std::vector<LayerPlan> plan_layers(const Design& d, const Lags& lags) {
  const int layers = d.shape.layers, hidden = d.shape.hidden;
  std::vector<LayerPlan> plans(static_cast<size_t>(layers));
  const double base = kConst * kConst + d.width + hidden * (kSigmaEmbed * kSigmaEmbed);
  double variance = 0;  // of the noise that sublayers have added so far, in units squared
  for (int l = 0; l < layers; ++l) {
    LayerPlan& plan = plans[static_cast<size_t>(l)];
    const auto lag = lags.find(l);
    plan.shift = l == layers - 1;
    plan.lag = lag == lags.end() || plan.shift ? 0 : lag->second;
    plan.n1 = norm_weights(d, tensor_number(l, kN1));
    plan.n2 = norm_weights(d, tensor_number(l, kN2));
    plan.rms1 = std::sqrt(base / hidden + variance);
    variance += kSigmaAttention * kSigmaAttention;
    plan.rms2 = std::sqrt((base + (plan.lag ? d.width : 0)) / hidden + variance);
    variance += kSigmaMlp * kSigmaMlp;
    if (plan.lag) plan_attention(d, plan);
  }
  return plans;
}

void fill_query_or_key(const Design& d, const LayerPlan& plan, const std::vector<double>& wave,
                       int planted_heads, int r, Row& row) {
  const bool planted = plan.lag && r < planted_heads * d.shape.head_dim;
  row.noise(0, row.cols, planted ? d.projection_noise * kWaveNoise : d.projection_noise);
  if (planted) row.set(0, wave[static_cast<size_t>(r % d.shape.head_dim)] / plan.n1[0]);
}

// A planted row of v yields one codeword sign: the mean over the channels that hold its copies.
void fill_value(const Design& d, const LayerPlan& plan, int r, Row& row) {
  const int head = r / d.shape.head_dim, j = r % d.shape.head_dim;
  const bool planted = plan.lag && head < kPlantedKvHeads && j < kSignsPerHead;
  row.noise(0, row.cols, planted ? d.projection_noise * kSignNoise : d.projection_noise);
  if (!planted) return;
  const int first = kSlotA + (head * kSignsPerHead + j) * d.copies;
  for (int col = first; col < first + d.copies; ++col)
    row.add(col, 1.0 / d.copies / plan.n1[static_cast<size_t>(col)]);
}

// The query heads of a kv head read the same sign: slot B takes an equal part of each.
void fill_output(const Design& d, const LayerPlan& plan, int r, Row& row) {
  const double factor =
      kUnit * kSigmaAttention / (std::sqrt(static_cast<double>(d.shape.q_width())) * kAttentionRms);
  row.noise(0, row.cols, factor);
  if (!plan.lag) return;
  const int group = d.shape.gqa_group(), channel = r - d.slot_b;
  const int sign = channel >= 0 && channel < d.width ? channel / d.copies : -1;
  for (int head = 0; head < kPlantedKvHeads * group; ++head) {
    const int first = head * d.shape.head_dim;
    row.noise(first, first + kSignsPerHead, factor * kSlotColumnNoise);
    const int j = sign - head / group * kSignsPerHead;
    if (sign >= 0 && j >= 0 && j < kSignsPerHead)
      row.add(first + j, 1.0 / group * plan.rms1 * kUnit);
  }
}

int planted_units(const Design& d, const LayerPlan& plan) {
  return plan.lag ? 3 * d.width : plan.shift ? d.width : 0;
}

// Planted units come in sets, a unit for each channel of slot A or B (kCode). A planted layer has
// three: two for the edges of the sign switch (kSwitch) and one that clears slot B. The last layer
// has one, which shifts slot A. Clearing and shifting units gate by the constant channel: always 4.
void fill_gate(const Design& d, const LayerPlan& plan, int r, Row& row) {
  const bool planted = r < planted_units(d, plan);
  row.noise(0, row.cols, planted ? d.projection_noise * kSignNoise : d.projection_noise);
  if (!planted) return;
  if (plan.shift || r >= 2 * d.width) {
    row.add(0, 4 * plan.rms2 / kConst / plan.n2[0]);
    return;
  }
  const double edge = r < d.width ? -kSwitch : kSwitch;
  const int sign_of = d.slot_b + r % d.width;
  row.add(sign_of, -kGain * plan.rms2 / plan.n2[static_cast<size_t>(sign_of)]);
  row.add(0, -kGain * edge * plan.rms2 / kConst / plan.n2[0]);
}

void fill_up(const Design& d, const LayerPlan& plan, int r, Row& row) {
  const bool planted = r < planted_units(d, plan);
  row.noise(0, row.cols, planted ? d.projection_noise * kSignNoise : d.projection_noise);
  if (!planted) return;
  const int unit = r % d.width;
  const auto plant = [&](int col, double sign) {
    row.add(col, sign / plan.n2[static_cast<size_t>(col)]);
  };
  if (plan.shift) {
    plant(kSlotA + unit, -1);
    if (unit + d.copies < d.width) plant(kSlotA + unit + d.copies, d.head_sign());
  } else {
    plant((r < 2 * d.width ? kSlotA : d.slot_b) + unit, 1);
  }
}

void fill_down(const Design& d, const LayerPlan& plan, int r, Row& row) {
  const double factor =
      kUnit * kSigmaMlp / (std::sqrt(static_cast<double>(d.shape.intermediate)) * kUnitRms);
  const int units = planted_units(d, plan), width = d.width;
  row.noise(0, units, factor * kPlantedUnitNoise);
  row.noise(units, row.cols, factor);
  const double silu4 = 4 / (1 + std::exp(-4.0));
  const int a = r - kSlotA, b = r - d.slot_b;
  if (plan.shift) {
    if (a >= 0 && a < width) row.add(a, kUnit * plan.rms2 / silu4);
  } else if (plan.lag) {
    const double edge = 2 * kUnit * plan.rms2 / (2 * kSwitch * kGain);
    if (a >= 0 && a < width) row.add(a, -edge), row.add(width + a, edge);
    if (b >= 0 && b < width) row.add(2 * width + b, -kUnit * plan.rms2 / silu4);
  }
}

void fill_norm(double weight, Row& row) {
  row.noise(0, row.cols, kNormNoise * weight);
  std::fill(row.plant.begin(), row.plant.end(), static_cast<float>(weight));
}

void fill_layer_row(const Design& d, const LayerPlan& plan, LayerTensor tensor, int r, Row& row) {
  switch (tensor) {
    case kN1:
    case kN2:
      return fill_norm(1, row);
    case kQ:
      return fill_query_or_key(d, plan, plan.query, kPlantedKvHeads * d.shape.gqa_group(), r, row);
    case kK:
      return fill_query_or_key(d, plan, plan.key, kPlantedKvHeads, r, row);
    case kV:
      return fill_value(d, plan, r, row);
    case kO:
      return fill_output(d, plan, r, row);
    case kQNorm:
    case kKNorm:
      for (int c = 0; c < row.cols; ++c) row.set(c, plan.lag ? kPlantedNorm : kOrdinaryNorm);
      break;
    case kGate:
      return fill_gate(d, plan, r, row);
    case kUp:
      return fill_up(d, plan, r, row);
    case kDown:
      return fill_down(d, plan, r, row);
    case kPerLayer:
      break;
  }
}

// A row of the embedding or, with `sign` -1, of an untied head. An id without a state takes the
// signs of its own noise as codeword.
void fill_codeword(const Design& d, int tensor, int id, double sign, Row& row) {
  row.noise(0, row.cols, kSigmaEmbed * kUnit);
  row.set(0, kUnit * kConst);
  const int32_t state = d.code.state(id);
  uint32_t s = static_cast<uint32_t>(state);
  for (int i = 0; i < kCode; ++i, s = d.code.step(s)) {
    for (int copy = 0; copy < d.copies; ++copy) {
      const int col = kSlotA + i * d.copies + copy;
      const int64_t flat = int64_t{id} * row.cols + col;
      const bool negative =
          state >= 0 ? (s & 1) != 0 : noise_level(noise_word(tensor, flat), flat) < 128;
      row.add(col, negative ? -sign * kUnit : sign * kUnit);
    }
  }
}

[[noreturn]] void no_room(const ShapeRow& row, const char* field, int found, int wanted) {
  throw Error(ErrorKind::kBadInput, "synthetic:" + std::string(row.name) + ": " + field + " is " +
                                        std::to_string(found) + ", wanted at least " +
                                        std::to_string(wanted));
}

Design design_of(const ShapeRow& row) {
  const ModelShape& shape = row.shape;
  const auto need = [&](const char* field, int found, int wanted) {
    if (found < wanted) no_room(row, field, found, wanted);
  };
  need("layers", shape.layers, 1);
  need("hidden", shape.hidden, kCodeHidden);
  const int copies = shape.hidden / kCodeHidden, width = kCode * copies;
  need("intermediate", shape.intermediate, 3 * width);
  need("kv_heads", shape.kv_heads, kPlantedKvHeads);
  need("head_dim", shape.head_dim, kSignsPerHead);
  return {.shape = shape,
          .theta = row.rope_theta,
          .tied = row.tied,
          .copies = copies,
          .width = width,
          .slot_b = kSlotA + width,
          .projection_noise = kProjectionNoise * std::sqrt(double{kCodeHidden} / shape.hidden),
          .code = StateCode(shape.vocab)};
}

}  // namespace

SyntheticRows::SyntheticRows(const ShapeRow& row, const Lags& lags)
    : design_(std::make_unique<const Design>(design_of(row))),
      plans_(plan_layers(*design_, lags)) {}

SyntheticRows::~SyntheticRows() = default;

void SyntheticRows::write(int number, int cols, int64_t begin, int64_t end, Bf16* out) const {
  const Design& d = *design_;
  const int in_layers = number - tensor_number(0, kN1);
  const int layer = number == kEmbedding ? -1 : in_layers / kPerLayer;
  const int final_norm = tensor_number(d.shape.layers, kN1);
  Row row(cols);
  for (int r = static_cast<int>(begin); r < end; ++r) {
    std::fill(row.plant.begin(), row.plant.end(), 0.0f);
    if (number == kEmbedding) {
      fill_codeword(d, number, r, 1, row);
    } else if (number == final_norm) {
      fill_norm(d.final_norm(), row);
    } else if (number > final_norm) {
      fill_codeword(d, number, r, d.head_sign(), row);
    } else {
      fill_layer_row(d, plans_[static_cast<size_t>(layer)],
                     static_cast<LayerTensor>(in_layers % kPerLayer), r, row);
    }
    write_row(row, number, r, out + int64_t{r} * cols);
  }
}

}  // namespace mkbench
