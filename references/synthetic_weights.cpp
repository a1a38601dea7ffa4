#include <algorithm>
#include <array>
#include <cmath>
#include <memory>

#include "references/base/error.h"
#include "references/base/parallel.h"
#include "references/synthetic.h"

// Compiled with -ffp-contract=off, because the bytes are specified with product and sum rounded
// separately. scripts/synthetic_checkpoint.py makes the same bytes by the same expressions.

namespace mkbench {
namespace {

constexpr ModelShape kShape = kQwen3_0_6B;
constexpr double kTheta = 1e6;

// The residual stream: channel 0 is constant, then comes slot A with the token's codeword, then
// slot B, into which a planted layer copies the codeword of an earlier position.
constexpr int kCode = 480;
constexpr int kSlotA = 1;
constexpr int kSlotB = kSlotA + kCode;
static_assert(kSlotB + kCode <= kShape.hidden);
constexpr double kUnit = 1.0 / 32;  // one codeword sign
constexpr double kConst = 8.0;      // the constant channel, in units

// Noise that a sublayer adds to a channel of the residual and that the embedding holds, in units,
// as designed. HF in fp32 on `short` (2026-11-22) adds 0.05 to 0.07 by attention, 0.06 to 0.07 by
// the MLP.
constexpr double kSigmaAttention = 0.08, kSigmaMlp = 0.06, kSigmaEmbed = 0.125;
constexpr double kDeviation = 73.9;  // standard deviation of 256 equally likely levels
constexpr double kNormNoise = 0.07;
// About 1 / sqrt(hidden): a row of pure noise turns a normed input into a value of deviation 0.95.
constexpr double kProjectionNoise = 0.03;

// Factors on the noise of planted rows and columns: no tensor holds zeros, and no planted weight is
// drowned in noise. The figures are from the run named above, layers 4, 5, 12 and 27.
// Planted rows of q and k: noise of 1.1 % of the wave (0.118 beside 10.4), which attention scores
// tolerate because query and key have many dimensions.
constexpr double kWaveNoise = 0.13;
// Planted rows of v, gate and up: noise of 2.1 % of a sign (0.029 beside 1.35). Each channel of a
// codeword is decided by itself, and the sign switch amplifies its noise.
constexpr double kSignNoise = 0.03;
// Columns of o that read planted heads hold values of 1.35 instead of 0.7: with this factor they
// add 0.032 units of noise, the other columns 0.058.
constexpr double kSlotColumnNoise = 0.3;
// Columns of down that read planted units hold values of 5.7 to 8.6 instead of 0.55: with this
// factor they add 0.04 units of noise, the other columns 0.04 to 0.05.
constexpr double kPlantedUnitNoise = 0.1;
// Root mean square of what the noise of o and down multiplies: outputs of noise heads (0.69
// measured in planted layers, 0.43 in others) and of noise units of the SwiGLU (0.53 to 0.55).
constexpr double kAttentionRms = 0.7, kUnitRms = 0.55;

// Planted attention: kv heads 0-3 with their query heads; each head carries 120 codeword signs, and
// its wave has 20 frequencies.
constexpr int kPlantedKvHeads = 4;
constexpr int kPlantedHeads = kPlantedKvHeads * kShape.gqa_group();
constexpr int kSignsPerHead = kCode / kPlantedKvHeads;
static_assert(kSignsPerHead <= kShape.head_dim);
constexpr int kFrequencies = 20;
// Weights of q_norm and k_norm. With 2.0 a planted score peaks at 2 * 2 * sqrt(head_dim) = 45.
constexpr double kPlantedNorm = 2.0, kOrdinaryNorm = 1.25;

// Planted MLP: slot A times the sign in slot B, as the difference of two SiLUs with edges at
// -kSwitch and kSwitch signs and a slope of kGain.
constexpr double kSwitch = 0.5, kGain = 8.0;

// One row of a tensor: element c is bf16(scale[c] * (h - 127.5) + plant[c]).
struct Row {
  std::array<float, kShape.intermediate> scale, plant;
  int cols = 0;

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

// Writes row `r`; a row starts on a multiple of 8 elements in every tensor of these shapes.
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

// The quantities of one layer that its rows are computed from.
struct LayerPlan {
  int lag = 0;                 // 0 = not planted
  bool shift = false;          // the last layer: its MLP makes one LFSR step
  double rms1 = 0, rms2 = 0;   // rms of the residual before attention and before the MLP
  std::vector<double> n1, n2;  // the two norms' weights, as stored
  std::array<double, kShape.head_dim> query{}, key{};
};

// Tensors are numbered 1 embedding, then 11 a layer in LayerWeights' order, last the final norm.
enum LayerTensor { kN1, kN2, kQ, kK, kV, kO, kQNorm, kKNorm, kGate, kUp, kDown, kPerLayer };
int tensor_number(int layer, LayerTensor t) { return 2 + kPerLayer * layer + t; }

// Planted query and key rows read the constant channel alone, so a score depends on the distance of
// two positions only, and peaks at `lag`.
void plan_attention(LayerPlan& plan) {
  std::array<double, kFrequencies> energy{};
  double sum = 0;
  for (int i = 0; i < kFrequencies; ++i) {
    energy[static_cast<size_t>(i)] = std::exp(-2.0 * i / 10.0);
    sum += energy[static_cast<size_t>(i)];
  }
  for (int i = 0; i < kFrequencies; ++i) {
    const size_t k = static_cast<size_t>(i);
    const double amplitude = std::sqrt(energy[k] / sum * kShape.head_dim);
    const double angle = plan.lag * std::pow(kTheta, -i / 64.0);
    plan.query[k] = amplitude;
    plan.key[k] = amplitude * std::cos(angle);
    plan.key[k + kShape.head_dim / 2] = amplitude * std::sin(angle);
  }
}

std::vector<double> norm_weights(int tensor) {
  std::vector<double> out(kShape.hidden);
  const float scale = static_cast<float>(kNormNoise / kDeviation);
  for (int64_t i = 0; i < kShape.hidden; ++i) {
    const uint32_t level = noise_level(noise_word(tensor, i), i);
    out[static_cast<size_t>(i)] = static_cast<double>(to_float(element(scale, level, 1.0f)));
  }
  return out;
}

std::vector<LayerPlan> plan_layers(const Lags& lags, int layers) {
  std::vector<LayerPlan> plans(static_cast<size_t>(layers));
  const double base = kConst * kConst + kCode + kShape.hidden * (kSigmaEmbed * kSigmaEmbed);
  double variance = 0;  // of the noise that sublayers have added so far, in units squared
  for (int l = 0; l < layers; ++l) {
    LayerPlan& plan = plans[static_cast<size_t>(l)];
    const auto lag = lags.find(l);
    plan.shift = l == layers - 1;
    plan.lag = lag == lags.end() || plan.shift ? 0 : lag->second;
    plan.n1 = norm_weights(tensor_number(l, kN1));
    plan.n2 = norm_weights(tensor_number(l, kN2));
    plan.rms1 = std::sqrt(base / kShape.hidden + variance);
    variance += kSigmaAttention * kSigmaAttention;
    plan.rms2 = std::sqrt((base + (plan.lag ? kCode : 0)) / kShape.hidden + variance);
    variance += kSigmaMlp * kSigmaMlp;
    if (plan.lag) plan_attention(plan);
  }
  return plans;
}

void fill_query_or_key(const LayerPlan& plan, const std::array<double, kShape.head_dim>& wave,
                       int planted_heads, int r, Row& row) {
  const bool planted = plan.lag && r < planted_heads * kShape.head_dim;
  row.noise(0, row.cols, planted ? kProjectionNoise * kWaveNoise : kProjectionNoise);
  if (planted) row.set(0, wave[static_cast<size_t>(r % kShape.head_dim)] / plan.n1[0]);
}

void fill_value(const LayerPlan& plan, int r, Row& row) {
  const int head = r / kShape.head_dim, j = r % kShape.head_dim;
  const bool planted = plan.lag && head < kPlantedKvHeads && j < kSignsPerHead;
  row.noise(0, row.cols, planted ? kProjectionNoise * kSignNoise : kProjectionNoise);
  const int col = kSlotA + head * kSignsPerHead + j;
  if (planted) row.add(col, 1 / plan.n1[static_cast<size_t>(col)]);
}

// A kv head has two query heads that read the same sign: slot B takes half of each.
void fill_output(const LayerPlan& plan, int r, Row& row) {
  const double factor = kUnit * kSigmaAttention / (std::sqrt(2048.0) * kAttentionRms);
  row.noise(0, row.cols, factor);
  if (!plan.lag) return;
  for (int head = 0; head < kPlantedHeads; ++head) {
    const int first = head * kShape.head_dim;
    row.noise(first, first + kSignsPerHead, factor * kSlotColumnNoise);
    const int j = r - (kSlotB + head / kShape.gqa_group() * kSignsPerHead);
    if (j >= 0 && j < kSignsPerHead) row.add(first + j, 0.5 * plan.rms1 * kUnit);
  }
}

int planted_units(const LayerPlan& plan) { return plan.lag ? 3 * kCode : plan.shift ? kCode : 0; }

// Units 0..479 and 480..959 of a planted layer are the two edges of the sign switch, units
// 960..1439 clear slot B. In the last layer units 0..479 shift slot A. Gates of clearing and
// shifting units read the constant channel and are 4 for every token.
void fill_gate(const LayerPlan& plan, int r, Row& row) {
  const bool planted = r < planted_units(plan);
  row.noise(0, row.cols, planted ? kProjectionNoise * kSignNoise : kProjectionNoise);
  if (!planted) return;
  if (plan.shift || r >= 2 * kCode) {
    row.add(0, 4 * plan.rms2 / kConst / plan.n2[0]);
    return;
  }
  const double edge = r < kCode ? -kSwitch : kSwitch;
  const int sign_of = kSlotB + r % kCode;
  row.add(sign_of, -kGain * plan.rms2 / plan.n2[static_cast<size_t>(sign_of)]);
  row.add(0, -kGain * edge * plan.rms2 / kConst / plan.n2[0]);
}

void fill_up(const LayerPlan& plan, int r, Row& row) {
  const bool planted = r < planted_units(plan);
  row.noise(0, row.cols, planted ? kProjectionNoise * kSignNoise : kProjectionNoise);
  if (!planted) return;
  const int unit = r % kCode;
  const auto plant = [&](int col, double sign) {
    row.add(col, sign / plan.n2[static_cast<size_t>(col)]);
  };
  if (plan.shift) {
    plant(kSlotA + unit, -1);
    if (unit + 1 < kCode) plant(kSlotA + unit + 1, 1);
  } else {
    plant((r < 2 * kCode ? kSlotA : kSlotB) + unit, 1);
  }
}

void fill_down(const LayerPlan& plan, int r, Row& row) {
  const double factor = kUnit * kSigmaMlp / (std::sqrt(3072.0) * kUnitRms);
  row.noise(0, planted_units(plan), factor * kPlantedUnitNoise);
  row.noise(planted_units(plan), row.cols, factor);
  const double silu4 = 4 / (1 + std::exp(-4.0));
  const int a = r - kSlotA, b = r - kSlotB;
  if (plan.shift) {
    if (a >= 0 && a < kCode) row.add(a, kUnit * plan.rms2 / silu4);
  } else if (plan.lag) {
    const double edge = 2 * kUnit * plan.rms2 / (2 * kSwitch * kGain);
    if (a >= 0 && a < kCode) row.add(a, -edge), row.add(kCode + a, edge);
    if (b >= 0 && b < kCode) row.add(2 * kCode + b, -kUnit * plan.rms2 / silu4);
  }
}

void fill_layer_row(const LayerPlan& plan, LayerTensor tensor, int r, Row& row) {
  switch (tensor) {
    case kN1:
    case kN2:
      row.noise(0, row.cols, kNormNoise);
      std::fill_n(row.plant.begin(), row.cols, 1.0f);
      break;
    case kQ:
      return fill_query_or_key(plan, plan.query, kPlantedHeads, r, row);
    case kK:
      return fill_query_or_key(plan, plan.key, kPlantedKvHeads, r, row);
    case kV:
      return fill_value(plan, r, row);
    case kO:
      return fill_output(plan, r, row);
    case kQNorm:
    case kKNorm:
      for (int c = 0; c < row.cols; ++c) row.set(c, plan.lag ? kPlantedNorm : kOrdinaryNorm);
      break;
    case kGate:
      return fill_gate(plan, r, row);
    case kUp:
      return fill_up(plan, r, row);
    case kDown:
      return fill_down(plan, r, row);
    case kPerLayer:
      break;
  }
}

// An id without a state takes the signs of its own noise as codeword.
void fill_embedding(int id, Row& row) {
  row.noise(0, row.cols, kSigmaEmbed * kUnit);
  row.set(0, kUnit * kConst);
  const int32_t state = synthetic_state(id);
  uint32_t s = static_cast<uint32_t>(state);
  for (int i = 0; i < kCode; ++i, s = lfsr_step(s)) {
    const int64_t flat = int64_t{id} * row.cols + kSlotA + i;
    const bool negative = state >= 0 ? (s & 1) != 0 : noise_level(noise_word(1, flat), flat) < 128;
    row.add(kSlotA + i, negative ? -kUnit : kUnit);
  }
}

ModelConfig synthetic_config(int layers) {
  ModelConfig config;
  config.shape = kShape;
  config.shape.layers = layers;
  config.rope_theta = kTheta;
  config.rope_theta_key = "built in";
  config.rms_norm_eps = 1e-6;
  config.tie_word_embeddings = true;
  config.max_positions = 40960;
  return config;
}

// new Bf16[n] does not write to the memory, so the threads that fill it are the first to touch its
// pages.
std::shared_ptr<Bf16[]> heap_memory(const ModelConfig& config) {
  return std::shared_ptr<Bf16[]>(new Bf16[static_cast<size_t>(config.shape.parameters(true))]);
}

}  // namespace

ModelWeights make_synthetic(std::string_view lagset, int threads, int layers,
                            const WeightMemory& memory) {
  const Lags& lags = synthetic_lags(lagset);
  if (layers < 1 || layers > kShape.layers) {
    throw Error(ErrorKind::kBadInput, "synthetic: layers is " + std::to_string(layers) +
                                          ", wanted 1 to " + std::to_string(kShape.layers));
  }
  ModelWeights w;
  w.name = "synthetic:" + std::string(lagset);
  w.lagset = lagset;
  w.config = synthetic_config(layers);
  w.head = "the embedding (built in)";
  w.layers.resize(static_cast<size_t>(layers));
  const std::shared_ptr<Bf16[]> held = memory ? memory(w.config) : heap_memory(w.config);
  const std::vector<LayerPlan> plans = plan_layers(lags, layers);

  int number = 0;
  Bf16* next = held.get();
  for (const NamedTensor& t : tensor_table(w.config)) {
    Matrix& matrix = tensor_of(w, t);
    if (t.global == &ModelWeights::lm_head) {
      matrix = w.embed_tokens;
      continue;
    }
    ++number;
    Bf16* out = next;
    matrix = {out, t.rows, t.cols};
    next += matrix.size();
    const auto role = static_cast<LayerTensor>((number - 2) % kPerLayer);
    const int64_t chunk = std::max(1, (1 << 16) / t.cols);
    parallel_chunks(t.rows, chunk, thread_count(threads), [&](int64_t begin, int64_t end) {
      Row row;
      row.cols = t.cols;
      for (int r = static_cast<int>(begin); r < end; ++r) {
        std::fill_n(row.plant.begin(), row.cols, 0.0f);
        if (t.layer >= 0) {
          fill_layer_row(plans[static_cast<size_t>(t.layer)], role, r, row);
        } else if (number == 1) {
          fill_embedding(r, row);
        } else {
          fill_layer_row(plans[0], kN1, r, row);  // the final norm has noise like every norm
        }
        write_row(row, number, r, out + int64_t{r} * row.cols);
      }
    });
  }
  w.owner = held;
  w.sha256 = hash_weights(w);
  return w;
}

}  // namespace mkbench
