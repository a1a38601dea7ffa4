#include "kernels/host_twin/faults.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

namespace mkbench::host_twin {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr int kUnwrittenSlot = 16;
constexpr int kSkippedEvery = 16;
constexpr int kUnscoredRows = 128;
// Threads of a published LM head that reduces its argmax by halving, to scale: 3 * 2^k.
constexpr int kHalvingSlots = 48;

// As an accumulator in bf16 leaves it after every 32 products.
float bf16_dot(const Bf16* w, const float* x, int cols) {
  constexpr int kChunk = 32;
  float total = 0;
  for (int from = 0; from < cols; from += kChunk) {
    float chunk = 0;
    const int end = std::min(cols, from + kChunk);
    for (int c = from; c < end; ++c) chunk += to_float(w[c]) * x[c];
    total = round_to_bf16(total + chunk);
  }
  return total;
}

// One sum from the last column to the first.
float backward_dot(const Bf16* w, const float* x, int cols) {
  float total = 0;
  for (int c = cols - 1; c >= 0; --c) total += to_float(w[c]) * x[c];
  return total;
}

// Keeps `bits` bits behind the leading one, rounded to nearest.
float with_mantissa(float x, int bits) {
  if (!std::isfinite(x) || x == 0) return x;
  const int shift = bits - std::ilogb(x);
  return static_cast<float>(std::ldexp(std::nearbyint(std::ldexp(double{x}, shift)), -shift));
}

// A tree that halves its number of slots: an odd number of them loses the last.
Best halving(const Block& b, const float* logits, Range rows) {
  std::array<Best, kHalvingSlots> slots;
  slots.fill({-kInfinity, std::numeric_limits<int32_t>::max()});
  for (int r = rows.begin; r < rows.end; ++r) {
    Best& slot = slots[static_cast<size_t>((r - rows.begin) % kHalvingSlots)];
    const Best row{logits[r], r};
    if (better(b, row, slot)) slot = row;
  }
  for (size_t half = kHalvingSlots / 2; half > 0; half /= 2) {
    for (size_t i = 0; i < half; ++i) {
      if (better(b, slots[i + half], slots[i])) slots[i] = slots[i + half];
    }
  }
  return slots[0];
}

}  // namespace

void round_as_hf(const Block& b, float* x, int n) {
  if (!planted(b, PlantedFault::kHfRounding)) return;
  for (int i = 0; i < n; ++i) x[i] = round_to_bf16(x[i]);
}

void matvec(const Block& b, const Bf16* w, int rows, int cols, const float* x, float* y) {
  const bool narrow_sums = planted(b, PlantedFault::kBf16Sums);
  if (!narrow_sums && !planted(b, PlantedFault::kOtherOrder)) {
    const bool fused = !planted(b, PlantedFault::kNoFusedMultiply);
    const VectorOps& ops = fused ? *b.model->ops : portable_vector_ops();
    return ops.matvec(w, rows, cols, x, y);
  }
  for (int r = 0; r < rows; ++r) {
    const Bf16* row = w + static_cast<size_t>(r) * cols;
    y[r] = narrow_sums ? bf16_dot(row, x, cols) : backward_dot(row, x, cols);
  }
}

float exponential(const Block& b, float x) {
  if (!planted(b, PlantedFault::kFastExp)) return std::exp(x);
  // ex2.approx: the product rounded to fp32, and a result whose last two bits are not to be had.
  const float y = std::exp2(x * 1.4426950408889634f);
  return std::bit_cast<float>(std::bit_cast<uint32_t>(y) & ~3u);
}

float activation(const Block& b, float gate) {
  if (planted(b, PlantedFault::kGelu)) {
    return 0.5f * gate * (1.0f + std::erf(gate * 0.70710678f));
  }
  return gate / (1.0f + exponential(b, -gate));
}

int rotary_position(const Block& b, int position, bool is_query) {
  const bool shifted = (planted(b, PlantedFault::kQueryPosition) && is_query) ||
                       (planted(b, PlantedFault::kDecodePositions) && b.decoding);
  return position + (shifted ? 1 : 0);
}

int written_row(const Block& b, int position) {
  if (planted(b, PlantedFault::kKvRowBefore)) return std::max(position - 1, 0);
  if (planted(b, PlantedFault::kSlotUnwritten) && position == kUnwrittenSlot) return -1;
  return position;
}

Bf16 stored(const Block& b, float x) {
  return to_bf16(planted(b, PlantedFault::kKvThreeBits) ? with_mantissa(x, 3) : x);
}

int context_at(const Block& b, int position) {
  if (planted(b, PlantedFault::kCacheLength)) return std::max(position, 1);
  if (planted(b, PlantedFault::kCacheLengthPlus)) return std::min(position + 2, b.max_context);
  return position + 1;
}

void leave_out(const Block& b, int from, int count, float* scores) {
  if (!planted(b, PlantedFault::kEvery16thSkipped)) return;
  for (int i = 0; i < count; ++i) {
    if ((from + i) % kSkippedEvery == kSkippedEvery - 1) scores[i] = -kInfinity;
  }
}

int scored_rows(const Block& b) {
  const int rows = b.model->weights.lm_head.rows;
  return planted(b, PlantedFault::kTailRowsUnscored) ? std::max(0, rows - kUnscoredRows) : rows;
}

Best winner(const Block& b, const float* logits, Range rows) {
  if (planted(b, PlantedFault::kArgmaxHalving)) return halving(b, logits, rows);
  // A block without rows loses every tie.
  Best best{-kInfinity, std::numeric_limits<int32_t>::max()};
  bool has_nan = false;
  for (int r = rows.begin; r < rows.end; ++r) {
    has_nan = has_nan || std::isnan(logits[r]);
    if (better(b, {logits[r], r}, best)) best = {logits[r], r};
  }
  if (has_nan) best = {std::numeric_limits<float>::quiet_NaN(), -1};
  return best;
}

bool better(const Block& b, Best a, Best other) {
  if (a.logit != other.logit) return a.logit > other.logit;
  if (planted(b, PlantedFault::kArgmaxHighest) && other.logit != -kInfinity) {
    return a.id > other.id;
  }
  return a.id < other.id;
}

}  // namespace mkbench::host_twin
