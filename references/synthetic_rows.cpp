#include "references/synthetic_rows.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "references/synthetic_plan.h"

namespace mkbench {

namespace {

using Design = SyntheticDesign;
using LayerPlan = SyntheticLayer;
using enum LayerTensor;

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

// Writes row `r`. A row starts on a multiple of 8 elements, because `cols` is a multiple of 8.
void write_row(const Row& row, uint64_t key, int tensor, int r, Bf16* out) {
  const int64_t first = int64_t{r} * row.cols;
  for (int c = 0; c < row.cols; c += 8) {
    const uint64_t word = noise_word(key, tensor, first + c);
    for (int i = 0; i < 8; ++i) {
      const size_t k = static_cast<size_t>(c + i);
      out[k] = synthetic_element(row.scale[k], noise_level(word, i), row.plant[k]);
    }
  }
}

// Deviations of the noise in rows of q and k, as parts of projection_noise. QK-norm scales ordinary
// rows by the norm's weight; without it the rows are scaled by that weight.
double wave_noise(const LayerPlan& plan) { return kWaveNoise * plan.wave; }
double ordinary_noise(const Design& d) { return d.shape.qk_norm ? 1 : kOrdinaryNorm; }

void fill_query_or_key(const Design& d, const LayerPlan& plan, const std::vector<double>& wave,
                       int planted_heads, int r, Row& row) {
  const bool planted = plan.lag && r < planted_heads * d.shape.head_dim;
  row.noise(0, row.cols, d.projection_noise * (planted ? wave_noise(plan) : ordinary_noise(d)));
  if (planted) row.set(0, wave[static_cast<size_t>(r % d.shape.head_dim)] / plan.n1[0]);
}

// A bias has the same share of noise as its row of q or k, so planted rows keep their values.
void fill_wave_bias(const Design& d, const LayerPlan& plan, int planted_heads, Row& row) {
  const int planted = plan.lag ? planted_heads * d.shape.head_dim : 0;
  row.noise(0, planted, kBiasNoise * wave_noise(plan));
  row.noise(planted, row.cols, kBiasNoise * ordinary_noise(d));
}

bool planted_sign(const Design& d, const LayerPlan& plan, int r) {
  return plan.lag && r / d.shape.head_dim < d.planted_heads && r % d.shape.head_dim < d.signs;
}

// A planted row of v yields one codeword sign: the mean over the channels that hold its copies.
void fill_value(const Design& d, const LayerPlan& plan, int r, Row& row) {
  const bool planted = planted_sign(d, plan, r);
  row.noise(0, row.cols, planted ? d.projection_noise * kSignNoise : d.projection_noise);
  if (!planted) return;
  const int sign = r / d.shape.head_dim * d.signs + r % d.shape.head_dim;
  const int first = kSlotA + sign * d.copies;
  for (int col = first; col < first + d.copies; ++col)
    row.add(col, 1.0 / d.copies / plan.n1[static_cast<size_t>(col)]);
}

void fill_value_bias(const Design& d, const LayerPlan& plan, Row& row) {
  for (int c = 0; c < row.cols; ++c)
    row.noise(c, c + 1, planted_sign(d, plan, c) ? kBiasNoise * kSignNoise : kBiasNoise);
}

// The query heads of a kv head read the same sign: slot B takes an equal part of each.
void fill_output(const Design& d, const LayerPlan& plan, int r, Row& row) {
  const double factor =
      kUnit * kSigmaAttention / (std::sqrt(static_cast<double>(d.shape.q_width())) * kAttentionRms);
  row.noise(0, row.cols, factor);
  if (!plan.lag) return;
  const int group = d.shape.gqa_group(), channel = r - d.slot_b;
  const int sign = channel >= 0 && channel < d.width ? channel / d.copies : -1;
  for (int head = 0; head < d.planted_heads * group; ++head) {
    const int first = head * d.shape.head_dim;
    row.noise(first, first + d.signs, factor * kSlotColumnNoise);
    const int j = sign - head / group * d.signs;
    if (sign >= 0 && j >= 0 && j < d.signs) row.add(first + j, 1.0 / group * plan.rms1 * kUnit);
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
  const int planted_queries = d.planted_heads * d.shape.gqa_group();
  switch (tensor) {
    case kN1:
    case kN2:
      return fill_norm(1, row);
    case kQ:
      return fill_query_or_key(d, plan, plan.query, planted_queries, r, row);
    case kK:
      return fill_query_or_key(d, plan, plan.key, d.planted_heads, r, row);
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
    case kQBias:
      return fill_wave_bias(d, plan, planted_queries, row);
    case kKBias:
      return fill_wave_bias(d, plan, d.planted_heads, row);
    case kVBias:
      return fill_value_bias(d, plan, row);
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
      const bool negative = state >= 0
                                ? (s & 1) != 0
                                : noise_level(noise_word(d.noise_key, tensor, flat), flat) < 128;
      row.add(col, negative ? -sign * kUnit : sign * kUnit);
    }
  }
}

}  // namespace

SyntheticRows::SyntheticRows(const ShapeRow& row, const Lags& lags, uint64_t salt)
    : design_(std::make_unique<const Design>(design_synthetic(row, salt))),
      plans_(plan_synthetic_layers(*design_, lags)) {}

SyntheticRows::~SyntheticRows() = default;

void SyntheticRows::write(int number, int cols, int64_t begin, int64_t end, Bf16* out) const {
  const Design& d = *design_;
  const int per_layer = static_cast<int>(d.tensors.size());
  const int in_layers = number - kFirstLayerNumber;
  const int final_norm = kFirstLayerNumber + per_layer * d.shape.layers;
  Row row(cols);
  for (int r = static_cast<int>(begin); r < end; ++r) {
    std::fill(row.plant.begin(), row.plant.end(), 0.0f);
    if (number == kEmbeddingNumber) {
      fill_codeword(d, number, r, 1, row);
    } else if (number == final_norm) {
      fill_norm(d.final_norm(), row);
    } else if (number > final_norm) {
      fill_codeword(d, number, r, d.head_sign(), row);
    } else {
      fill_layer_row(d, plans_[static_cast<size_t>(in_layers / per_layer)],
                     d.tensors[static_cast<size_t>(in_layers % per_layer)], r, row);
    }
    write_row(row, d.noise_key, number, r, out + int64_t{r} * cols);
  }
}

}  // namespace mkbench
