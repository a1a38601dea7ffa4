#include "kernels/host_twin/faults.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <optional>

#include "references/planted_fault.h"

namespace mkbench::host_twin {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr int kUnwrittenSlot = 16;
constexpr int kSkippedEvery = 16;
constexpr int kUnscoredRows = 128;
// kArgmaxHalving: a published LM head reduces its argmax by halving over 3 * 2^k threads; here 3 * 2^4.
constexpr int kHalvingSlots = 48;

// The dot product that an accumulator in bf16 gives, rounded after every 32 products.
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

// The dot product as one sum from the last column to the first.
float backward_dot(const Bf16* w, const float* x, int cols) {
  float total = 0;
  for (int c = cols - 1; c >= 0; --c) total += to_float(w[c]) * x[c];
  return total;
}

// x with a mantissa of `bits` bits after the leading one, rounded to nearest.
float with_mantissa(float x, int bits) {
  if (!std::isfinite(x) || x == 0) return x;
  const int shift = bits - std::ilogb(x);
  return static_cast<float>(std::ldexp(std::nearbyint(std::ldexp(double{x}, shift)), -shift));
}

// Each override computes what the correct function does, unless one of its faults is planted.
class FaultyPhases final : public Phases {
 public:
  FaultyPhases(PlantedFault fault, int blocks)
      : fault_(fault), late_(static_cast<size_t>(blocks)), early_(static_cast<size_t>(blocks)) {}

  void phase_embed(Block& b, int32_t id, const Bf16* vector) override {
    // A poisoned block forgets the step before.
    if (std::isnan(b.local.x[0])) {
      late_[b.index].clear();
      early_[b.index].reset();
    }
    Phases::phase_embed(b, id, vector);
  }

  void phase_gate_up(Block& b, int layer) override {
    Phases::phase_gate_up(b, layer);
    const Range mine = partition(b.model->shape().intermediate, b.blocks, b.index);
    round_as_hf(b.shared->act.data() + mine.begin, mine.size());
  }

  void phase_down(Block& b, int layer) override {
    if (planted(PlantedFault::kMlpResidualDropped) && layer == 1) {
      const Range mine = partition(b.model->shape().hidden, b.blocks, b.index);
      std::fill_n(b.shared->h.begin() + mine.begin, mine.size(), 0.0f);
    }
    Phases::phase_down(b, layer);
  }

  int32_t block_reduce_best(Block& b) override {
    if (!planted(PlantedFault::kArgmaxEarly)) return Phases::block_reduce_best(b);
    // One block's best logit is read too early: the previous step's; -inf in the first step.
    // In the tiny checkpoints, whose ids are bytes, this block scores lower-case letters.
    std::vector<Best> winners = b.shared->best;
    Best& early = winners[static_cast<size_t>(b.blocks * 3 / 8)];
    const Best now = early;
    early = early_[b.index].value_or(Best{-kInfinity, now.id});
    early_[b.index] = now;
    return greedy_id(winners);
  }

 protected:
  void matvec(const Block& b, const Bf16* w, int rows, int cols, const float* x,
              float* y) override {
    const bool narrow_sums = planted(PlantedFault::kBf16Sums);
    if (planted(PlantedFault::kNoFusedMultiply)) {
      return portable_vector_ops().matvec(w, rows, cols, x, y);
    }
    if (!narrow_sums && !planted(PlantedFault::kOtherOrder)) {
      return Phases::matvec(b, w, rows, cols, x, y);
    }
    for (int r = 0; r < rows; ++r) {
      const Bf16* row = w + static_cast<size_t>(r) * cols;
      y[r] = narrow_sums ? bf16_dot(row, x, cols) : backward_dot(row, x, cols);
    }
  }

  void project(const Block& b, const Matrix& w, Range range, const float* x, float* y,
               const Matrix& bias) override {
    Phases::project(b, w, range, x, y, bias);
    round_as_hf(y, range.size());
  }

  void rms_norm(const Block& b, const float* x, const Matrix& weight, float* out) override {
    Phases::rms_norm(b, x, weight, out);
    round_as_hf(out, weight.cols);
  }

  void rotate(const Block& b, int position, float* head) override {
    Phases::rotate(b, position, head);
    round_as_hf(head, b.model->shape().head_dim);
  }

  void prepare_head(const Block& b, Head kind, const float* raw, int layer, int position,
                    float* out) override {
    const bool is_query = kind == Head::kQuery;
    if (planted(PlantedFault::kQueryPosition) && is_query) ++position;
    if (planted(PlantedFault::kDecodePositions) && b.launch->lm_head) ++position;
    const bool rotated_first = planted(PlantedFault::kNormAfterRope);
    if (!rotated_first &&
        !planted(is_query ? PlantedFault::kSkipQNorm : PlantedFault::kSkipKNorm)) {
      return Phases::prepare_head(b, kind, raw, layer, position, out);
    }
    std::copy_n(raw, b.model->shape().head_dim, out);
    rotate(b, position, out);
    const LayerWeights& w = b.model->weights.layers[layer];
    if (rotated_first) rms_norm(b, out, is_query ? w.q_norm : w.k_norm, out);
  }

  void write_kv_row(Block& b, int layer, int kv_head, int position) override {
    if (planted(PlantedFault::kSlotUnwritten) && position == kUnwrittenSlot) return;
    const int head_dim = b.model->shape().head_dim;
    Bf16* k = b.kv->k(layer, kv_head, position);
    Bf16* v = b.kv->v(layer, kv_head, position);
    const bool row_before = planted(PlantedFault::kKvRowBefore) && position > 0;
    const std::vector<Bf16> old_k(k, k + head_dim), old_v(v, v + head_dim);
    Phases::write_kv_row(b, layer, kv_head, position);
    if (row_before) {
      std::copy_n(k, head_dim, k - head_dim);
      std::copy_n(v, head_dim, v - head_dim);
      std::copy(old_k.begin(), old_k.end(), k);
      std::copy(old_v.begin(), old_v.end(), v);
    }
    if (planted(PlantedFault::kValueNormed)) {
      const ModelShape& s = b.model->shape();
      const float* raw = b.shared->qkv.data() + s.q_width() + s.kv_width() + kv_head * head_dim;
      rms_norm(b, raw, b.model->weights.layers[layer].k_norm, b.local.k.data());
      for (int d = 0; d < head_dim; ++d) v[d] = cached(b.local.k[d]);
    }
    if (planted(PlantedFault::kPrefixModified) && position >= 3) {
      b.kv->v(layer, kv_head, position - 3)[0].bits ^= 1;  // the last bit of an older value
    }
  }

  Bf16 cached(float x) override {
    return to_bf16(planted(PlantedFault::kKvThreeBits) ? with_mantissa(x, 3) : x);
  }

  int attended_positions(const Block& b, int position) override {
    if (planted(PlantedFault::kCacheLength)) return std::max(position, 1);
    if (planted(PlantedFault::kCacheLengthPlus)) {
      return std::min(position + 2, b.kv->max_context());
    }
    const int positions = Phases::attended_positions(b, position);
    return planted(PlantedFault::kStopsAt2048) ? std::min(positions, kLastAttended) : positions;
  }

  void score(const Block& b, int layer, int kv_head, int from, int count, const float* q,
             float* scores) override {
    Phases::score(b, layer, kv_head, from, count, q, scores);
    round_as_hf(scores, count);
    if (!planted(PlantedFault::kEvery16thSkipped)) return;
    for (int i = 0; i < count; ++i) {
      if ((from + i) % kSkippedEvery == kSkippedEvery - 1) scores[i] = -kInfinity;
    }
  }

  float running_maximum(float before, const float* scores, int count) override {
    if (planted(PlantedFault::kNoSoftmaxMax)) return 0;
    return Phases::running_maximum(before, scores, count);
  }

  void add_values(const Block& b, int layer, int kv_head, int from, int count, float* weights,
                  float* v_sums) override {
    if (planted(PlantedFault::kBf16Softmax)) {
      std::transform(weights, weights + count, weights, round_to_bf16);
    }
    Phases::add_values(b, layer, kv_head, from, count, weights, v_sums);
  }

  void combine_head(const Block& b, int head, int splits, float* out) override {
    Phases::combine_head(b, head, splits, out);
    round_as_hf(out, b.model->shape().head_dim);
  }

  void block_add_to_residual(Block& b, const Matrix& w, const float* x) override {
    std::vector<float>& late = late_[b.index];
    std::vector<float> now;
    if (planted(PlantedFault::kRowsLate) && &w == &b.model->weights.layers.back().down_proj &&
        b.index == b.blocks / 2) {
      // The block reads the activations of the step before; in the first step, the right ones.
      now = b.shared->act;
      if (late.empty()) late = now;
      std::swap(late, now);
      x = now.data();
    }
    Phases::block_add_to_residual(b, w, x);
    const Range mine = partition(w.rows, b.blocks, b.index);
    round_as_hf(b.shared->h.data() + mine.begin, mine.size());
  }

  float exponential(float x) override {
    if (!planted(PlantedFault::kFastExp)) return Phases::exponential(x);
    // ex2.approx: the product is rounded to fp32, and the last two bits of the result are lost.
    const float y = std::exp2(x * 1.4426950408889634f);
    return std::bit_cast<float>(std::bit_cast<uint32_t>(y) & ~3u);
  }

  float activate(const Block& b, float x) override {
    float y = Phases::activate(b, x);
    if (planted(PlantedFault::kGelu)) y = 0.5f * x * (1.0f + std::erf(x * 0.70710678f));
    round_as_hf(&y, 1);
    return y;
  }

  Range head_rows(const Block& b) override {
    const Range rows = Phases::head_rows(b);
    if (!planted(PlantedFault::kTailRowsUnscored)) return rows;
    const int scored = std::max(0, b.model->weights.lm_head.rows - kUnscoredRows);
    return {std::min(rows.begin, scored), std::min(rows.end, scored)};
  }

  void head_logits(Block& b, Range rows) override {
    Phases::head_logits(b, rows);
    float* logits = b.shared->logits.data();
    if (planted(PlantedFault::kBf16Logits)) {
      std::transform(logits + rows.begin, logits + rows.end, logits + rows.begin, round_to_bf16);
    }
    if (planted(PlantedFault::kNanLogit) && b.index == 0) logits[0] = kNaN;
  }

  Best best_of(const float* logits, Range rows) override {
    if (!planted(PlantedFault::kArgmaxHalving)) return Phases::best_of(logits, rows);
    // A tree that halves the number of slots: an odd number loses its last slot.
    std::array<Best, kHalvingSlots> slots;
    slots.fill({-kInfinity, std::numeric_limits<int32_t>::max()});
    for (int r = rows.begin; r < rows.end; ++r) {
      Best& slot = slots[static_cast<size_t>((r - rows.begin) % kHalvingSlots)];
      if (better({logits[r], r}, slot)) slot = {logits[r], r};
    }
    for (size_t half = kHalvingSlots / 2; half > 0; half /= 2) {
      for (size_t i = 0; i < half; ++i) {
        if (better(slots[i + half], slots[i])) slots[i] = slots[i + half];
      }
    }
    return slots[0];
  }

  bool better(Best a, Best other) override {
    if (planted(PlantedFault::kArgmaxHighest) && a.logit == other.logit &&
        other.logit != -kInfinity) {
      return a.id > other.id;
    }
    return Phases::better(a, other);
  }

 private:
  bool planted(PlantedFault fault) const { return fault_ == fault; }

  // Rounds x[0 .. n) to bf16, with kHfRounding only: the overrides call it where HF's modules
  // round.
  void round_as_hf(float* x, int n) const {
    if (planted(PlantedFault::kHfRounding)) std::transform(x, x + n, x, round_to_bf16);
  }

  const PlantedFault fault_;
  // Values of the step before, by block: activations (kRowsLate), a best logit (kArgmaxEarly).
  std::vector<std::vector<float>> late_;
  std::vector<std::optional<Best>> early_;
};

}  // namespace

std::unique_ptr<Phases> make_phases(PlantedFault fault, int blocks) {
  if (fault == PlantedFault::kNone) return std::make_unique<Phases>();
  return std::make_unique<FaultyPhases>(fault, blocks);
}

}  // namespace mkbench::host_twin
