#include "baselines/deviant_model.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>

#include "references/model/rope.h"

namespace mkbench {

using at::Tensor;

// Sequences through the model, padded at their ends to the longest. Hidden states are
// [runs, rows, hidden], heads [runs, heads, rows, head_dim].
class DeviantModel::Pass {
 public:
  Pass(const ModelTensors& m, const Rope& rope, std::span<const ObservedRun> runs,
       std::span<const Deviation> bugs, bool rounded)
      : m_(m), rope_(rope), runs_(runs), bugs_(bugs), rounded_(rounded) {
    std::vector<float> decoded;
    for (const ObservedRun& run : runs) {
      rows_ = std::max(rows_, static_cast<int64_t>(run.ids.size()));
      decoded.push_back(static_cast<float>(run.prompt - 1));
    }
    decoded_ = at::tensor(decoded).to(m.real.device()).view({count(), 1});
    const Tensor at = positions();
    query_angles_ = angles(at + value(Bug::kQueryPosition, 0));
    key_angles_ = angles(at);
    unseen_ = ~seen();
    kv_of_keys_ = kv_heads(false);
    kv_of_values_ = kv_heads(true);
  }

  Tensor logits() {
    Tensor h = embed();
    const int layers = static_cast<int>(m_.layers.size());
    for (int l = 0; l < layers; ++l) {
      if (has(Bug::kLayerSkipped, l)) continue;
      int from = has(Bug::kFirstLayerAlone) ? 0 : l;
      if (has(Bug::kLayerBefore, l) && l > 0) from = l - 1;
      for (int times = has(Bug::kLayerTwice, l) ? 2 : 1; times > 0; --times)
        h = layer(m_.layers[static_cast<size_t>(from)], l, h);
    }
    return head(h.flatten(0, 1).index_select(0, steps()));
  }

 private:
  struct Angles {
    Tensor cos, sin;  // [runs, 1, rows, rotated dimensions / 2]
  };

  bool has(Bug bug, int layer = 0) const { return find(bug, layer) != nullptr; }
  double value(Bug bug, double otherwise, int layer = 0) const {
    const Deviation* found = find(bug, layer);
    return found != nullptr ? found->value : otherwise;
  }
  const Deviation* find(Bug bug, int layer) const {
    for (const Deviation& d : bugs_) {
      if (d.bug == bug && (d.layer < 0 || d.layer == layer)) return &d;
    }
    return nullptr;
  }
  Tensor round(const Tensor& x) const { return rounded_ ? x.to(at::kBFloat16).to(at::kFloat) : x; }
  int64_t count() const { return static_cast<int64_t>(runs_.size()); }
  Tensor row_numbers() const { return at::arange(rows_, m_.real); }
  Tensor on_device(const std::vector<int64_t>& numbers) const {
    return at::tensor(numbers, at::kLong).to(m_.real.device());
  }

  // The rows whose logits are wanted, counted through all runs.
  Tensor steps() const {
    std::vector<int64_t> steps;
    int64_t end = 0;
    for (const ObservedRun& run : runs_) {
      const auto found = static_cast<int64_t>(run.found.size());
      const int64_t last = end + static_cast<int64_t>(run.ids.size());
      for (int64_t r = last - found; r < last; ++r) steps.push_back(r);
      end += rows_;
    }
    return on_device(steps);
  }

  // [runs, 1], the first row of the call whose steps are compared.
  Tensor last_call() const {
    std::vector<float> first;
    for (const ObservedRun& run : runs_)
      first.push_back(static_cast<float>(run.ids.size() - run.found.size()));
    return at::tensor(first).to(m_.real.device()).view({count(), 1});
  }

  Tensor embed() const {
    std::vector<int64_t> ids;
    for (const ObservedRun& run : runs_) {
      const bool late = has(Bug::kIdLate);
      for (size_t r = 0; r < run.ids.size(); ++r)
        ids.push_back(run.ids[late && r >= static_cast<size_t>(run.prompt) ? r - 1 : r]);
      ids.resize(static_cast<size_t>((&run - runs_.data() + 1) * rows_));
    }
    const Tensor& table = has(Bug::kEmbeddingOfHead) ? m_.lm_head : m_.embed;
    const Tensor rows = at::embedding(table, on_device(ids)).to(at::kFloat);
    return m_.scaled(rows).view({count(), rows_, -1}) * value(Bug::kEmbeddingFactor, 1);
  }

  // x / rms(x) * weight over the last dimension.
  Tensor norm(const Tensor& x, const Tensor& weight, bool unweighted = false) const {
    const Tensor centred = has(Bug::kNormMean) ? x - x.mean(-1, true) : x;
    const Tensor squares = centred.pow(2);
    const Tensor mean = has(Bug::kNormSum) ? squares.sum(-1, true) : squares.mean(-1, true);
    const Tensor scaled = round(centred * at::rsqrt(mean + value(Bug::kEps, m_.eps)));
    if (unweighted) return scaled;
    return round(scaled * (weight + value(Bug::kNormPlus, 0)));
  }

  Tensor layer(const LayerTensors& w, int l, const Tensor& h) const {
    const bool swapped = has(Bug::kNormsSwapped), bare = has(Bug::kNormUnweighted);
    const Tensor x = has(Bug::kInputNormMissing, l)
                         ? h
                         : norm(h, swapped ? w.post_attention_norm : w.input_norm, bare);
    Tensor after = has(Bug::kResidualNormed) ? x : h;
    if (!has(Bug::kAttentionMissing, l)) {
      const Tensor mixed = attention(w, l, x);
      after = has(Bug::kAttentionResidualMissing, l) ? mixed : round(after + mixed);
      if (has(Bug::kResidualTwice)) after = after + h;
    }
    if (has(Bug::kMlpMissing, l)) return after;
    const Tensor in = has(Bug::kParallelMlp) ? h : after;
    const Tensor y = has(Bug::kPostNormMissing, l)
                         ? in
                         : norm(in, swapped ? w.input_norm : w.post_attention_norm, bare);
    if (has(Bug::kMlpResidualMissing, l)) return mlp(w, l, y);
    if (has(Bug::kStaleResidual)) return round(h + mlp(w, l, y));
    return round((has(Bug::kResidualNormed) ? y : after) + mlp(w, l, y));
  }

  Tensor apply(const Tensor& x, const Tensor& matrix) const {
    return at::linear(x, matrix.to(at::kFloat));
  }

  Tensor mlp(const LayerTensors& w, int l, const Tensor& x) const {
    const bool swapped = has(Bug::kSwapGateUp, l);
    const Tensor raw = round(apply(x, swapped ? w.up_proj : w.gate_proj));
    const Tensor gate = activate(raw);
    if (has(Bug::kUpMissing)) return round(apply(gate, w.down_proj));
    const Tensor up = round(apply(x, swapped ? w.gate_proj : w.up_proj));
    if (has(Bug::kProductActivated)) return round(apply(activate(raw * up), w.down_proj));
    return round(apply(round(gate * up), w.down_proj));
  }

  Tensor activate(const Tensor& gate) const {
    if (has(Bug::kGelu)) return at::gelu(gate, "none");
    if (has(Bug::kGeluTanh)) return at::gelu(gate, "tanh");
    if (has(Bug::kRelu)) return at::relu(gate);
    if (has(Bug::kSigmoid)) return at::sigmoid(gate);
    return has(Bug::kNoActivation) ? gate : round(m_.activate(gate));
  }

  // --- RoPE ---

  // [runs, rows]
  Tensor positions() const {
    const Tensor at = row_numbers().view({1, rows_});
    if (has(Bug::kCallPositions)) {  // the compared steps are one call, those before them another
      const Tensor call = last_call();
      return at::where(at >= call, call, at::minimum(at, at::where(at >= decoded_, decoded_, at)));
    }
    const Tensor shift = has(Bug::kDecodeRestarts)
                             ? -decoded_
                             : at::full_like(decoded_, value(Bug::kDecodePositions, 0));
    return at + shift * (at >= decoded_);
  }

  // The dimensions of a head that RoPE rotates.
  int64_t rotated() const { return m_.shape.head_dim / (has(Bug::kRopeHalf) ? 2 : 1); }

  Angles angles(const Tensor& at) const {
    const int64_t dim = rotated();
    const Tensor exponent = at::arange(0, dim, 2, at::kFloat) / dim * value(Bug::kRopeExponent, 1);
    Rope rope = rope_;
    rope.theta = value(Bug::kRopeTheta, rope.theta);
    if (has(Bug::kRopeUnscaled)) rope.scaling = RopeScaling::kNone;
    const Tensor frequencies = at::reciprocal(at::pow(rope.theta, exponent));
    scale_frequencies(
        rope, {frequencies.mutable_data_ptr<float>(), static_cast<size_t>(frequencies.numel())});
    if (has(Bug::kRopeScalingSwapped)) {
      const Tensor plain = at::reciprocal(at::pow(rope.theta, exponent));
      frequencies.copy_(plain * (1 + 1 / rope.factor) - frequencies);
    }
    const Tensor all = at.view({count(), 1, rows_, 1}) * frequencies.to(m_.real.device());
    const Tensor sin = all.sin();
    return {all.cos(), has(Bug::kRotateSign) ? -sin : sin};
  }

  // Rotates x [runs, heads, rows, dim].
  Tensor rotate(const Tensor& x, const Angles& angles) const {
    if (has(Bug::kRopeMissing)) return x;
    const int64_t dim = rotated(), half = dim / 2;
    const Tensor part = x.narrow(-1, 0, dim);
    const bool interleaved = has(Bug::kRopeInterleaved), shifted = has(Bug::kRopePairsShifted);
    Tensor a = interleaved ? part.slice(-1, 0, dim, 2) : part.narrow(-1, 0, half);
    Tensor b = interleaved ? part.slice(-1, 1, dim, 2) : part.narrow(-1, half, half);
    if (shifted) b = b.roll(-1, -1);
    const Tensor first = a * angles.cos - b * angles.sin;
    Tensor second = b * angles.cos + a * angles.sin;
    if (shifted) second = second.roll(1, -1);
    const Tensor turned =
        interleaved ? at::stack({first, second}, -1).flatten(-2) : at::cat({first, second}, -1);
    return round(dim < x.size(-1) ? at::cat({turned, x.narrow(-1, dim, x.size(-1) - dim)}, -1)
                                  : turned);
  }

  // --- attention ---

  Tensor matrix_of(const Tensor& matrix, int role) const {
    return has(Bug::kTransposed) && value(Bug::kTransposed, 0) == role ? matrix.t() : matrix;
  }

  // The bias of q, k or v by its role 0, 1 or 2, [width]; undefined where none is added.
  Tensor bias_of(const LayerTensors& w, int role) const {
    const double dropped = value(Bug::kBiasDropped, -1);
    if (!w.qkv_bias.defined() || dropped == 0 || dropped == role + 1) return {};
    const int64_t q = m_.shape.q_width(), kv = m_.shape.kv_width();
    return role == 0 ? w.qkv_bias.narrow(0, 0, q) : w.qkv_bias.narrow(0, q + (role - 1) * kv, kv);
  }

  Tensor in_heads(const Tensor& x, int64_t heads) const {
    return x.view({-1, x.size(-2), heads, m_.shape.head_dim}).transpose(1, 2);
  }

  // x [runs, rows, hidden] -> [runs, heads, rows, head_dim]; `role` as in bias_of().
  Tensor project(const LayerTensors& w, const Tensor& x, const Tensor& matrix, int role) const {
    Tensor all = apply(x, matrix_of(matrix, role));
    const Tensor bias = bias_of(w, role);
    if (bias.defined() && !(has(Bug::kBiasAfterRope) && role < 2)) all = all + bias;
    return in_heads(round(all), role == 0 ? m_.shape.heads : m_.shape.kv_heads);
  }

  Tensor head_norm(const Tensor& x, const Tensor& weight) const {
    if (!has(Bug::kQkNormWhole)) return norm(x, weight, has(Bug::kNormUnweighted));
    const Tensor scale = at::rsqrt(x.pow(2).mean(at::IntArrayRef({1, 3}), true) + m_.eps);
    return x * scale * weight;
  }

  // QK-norm, if the model has it, and RoPE.
  Tensor prepare(const Tensor& x, const Tensor& weight, bool normed, bool rotated,
                 const Angles& angles) const {
    Tensor y = x;
    normed = normed && weight.defined() && !has(Bug::kSkipQkNorm);
    const bool late = has(Bug::kNormAfterRope);
    if (normed && !late) y = head_norm(y, weight);
    if (rotated) y = rotate(y, angles);
    return normed && late ? head_norm(y, weight) : y;
  }

  // [runs, 1, rows, rows], true where a row (the third dimension) sees another.
  Tensor seen() const {
    const Tensor i = row_numbers().view({1, 1, rows_, 1}), j = row_numbers().view({1, 1, 1, rows_});
    const Tensor decoded = decoded_.view({count(), 1, 1, 1});
    Tensor mask = j <= i;
    if (unseen_newest())
      mask = mask & ((j < i) | (i == 0) | (has(Bug::kNewestUnseenInDecode) ? i < decoded : i < 0));
    if (has(Bug::kNextSeen)) mask = (j <= i + 1) & ((j < decoded) | (j <= i));
    if (has(Bug::kNoMask)) mask = mask | ((i < decoded) & (j < decoded));
    if (has(Bug::kFirstUnseen) || has(Bug::kRowBefore)) mask = mask & ((j > 0) | (i == 0));
    if (has(Bug::kWindow)) mask = mask & (j > i - value(Bug::kWindow, 0));
    if (has(Bug::kEveryNthUnseen)) {
      const double n = value(Bug::kEveryNthUnseen, 0);
      mask = mask & ((j.remainder(n) != n - 1) | (i == 0));
    }
    if (has(Bug::kPromptForgotten)) mask = mask & ((i < decoded) | (j >= decoded));
    return mask;
  }
  bool unseen_newest() const {
    return has(Bug::kNewestUnseen) || has(Bug::kNewestUnseenInDecode) || has(Bug::kNewestZero);
  }

  // Which kv head each query head reads.
  Tensor kv_heads(bool of_values) const {
    const int64_t group = m_.shape.gqa_group(), kv = m_.shape.kv_heads;
    const bool by_rest = has(Bug::kGqaMap) || (of_values && has(Bug::kGqaMapOfValues));
    std::vector<int64_t> heads;
    for (int64_t h = 0; h < m_.shape.heads; ++h)
      heads.push_back(has(Bug::kGqaFirst) ? 0 : by_rest ? h % kv : h / group);
    return on_device(heads);
  }

  Tensor rows_late(const Tensor& x) const {
    return at::cat({x.narrow(2, 0, 1), x.narrow(2, 0, rows_ - 1)}, 2);
  }

  Tensor values(const LayerTensors& w, const Tensor& x) const {
    const bool from_keys = has(Bug::kKvSwapped);
    Tensor v = project(w, x, from_keys ? w.k_proj : w.v_proj, from_keys ? 1 : 2);
    if (has(Bug::kValueNormed) && w.k_norm.defined()) v = norm(v, w.k_norm);
    if (has(Bug::kRopeOfValues)) v = rotate(v, key_angles_);
    if (has(Bug::kNextValueHead)) {
      const Tensor next = v.roll(-1, 1);
      v = value(Bug::kNextValueHead, 0) == 0
              ? at::cat({next.narrow(1, 0, 1), v.narrow(1, 1, v.size(1) - 1)}, 1)
              : next;
    }
    return has(Bug::kValuesLate) ? rows_late(v) : v;
  }

  Tensor softmax(const Tensor& scores) const {
    if (has(Bug::kSoftmaxSum)) return (scores - scores.amax(-1, true)).exp();
    if (!has(Bug::kSplitMaxima)) return at::softmax(scores, -1);
    Tensor parts = scores.clone();
    const auto n = std::min(static_cast<int64_t>(value(Bug::kSplitMaxima, 1)), scores.size(-1));
    for (int64_t split = 0; split < n; ++split) {
      Tensor part = parts.slice(-1, split, parts.size(-1), n);
      const Tensor most = part.amax(-1, true);
      part.copy_((part - at::where(most.isinf(), at::zeros_like(most), most)).exp());
    }
    return parts / parts.sum(-1, true);
  }

  Tensor attention(const LayerTensors& w, int l, const Tensor& x) const {
    const bool swapped = has(Bug::kQkNormsSwapped), from_values = has(Bug::kKvSwapped);
    Tensor query = prepare(project(w, x, w.q_proj, 0), swapped ? w.k_norm : w.q_norm,
                           !has(Bug::kSkipQNorm, l), !has(Bug::kRopeOfKeys), query_angles_);
    Tensor key = prepare(project(w, x, from_values ? w.v_proj : w.k_proj, from_values ? 2 : 1),
                         swapped ? w.q_norm : w.k_norm, !has(Bug::kSkipKNorm, l),
                         !has(Bug::kRopeOfQueries), key_angles_);
    if (has(Bug::kBiasAfterRope)) {
      query = query + in_heads(bias_of(w, 0).view({1, 1, -1}), m_.shape.heads);
      key = key + in_heads(bias_of(w, 1).view({1, 1, -1}), m_.shape.kv_heads);
    }
    if (has(Bug::kKeysLate)) key = rows_late(key);
    const Tensor keys = key.index_select(1, kv_of_keys_);
    Tensor v = values(w, x).index_select(1, kv_of_values_);
    const double factor = m_.scaling * value(Bug::kScoreFactor, 1);
    Tensor scores = at::matmul(query, keys.transpose(2, 3)) * factor;
    scores = scores.masked_fill(unseen_, -std::numeric_limits<double>::infinity());
    if (has(Bug::kZeroRowSeen) || has(Bug::kNewestZero) ||
        has(Bug::kRowBefore)) {  // a row of K and V that holds zeros
      scores = at::cat({scores, at::zeros({count(), m_.shape.heads, rows_, 1}, m_.real)}, -1);
      v = at::cat({v, at::zeros({count(), v.size(1), 1, v.size(3)}, m_.real)}, 2);
    }
    const Tensor shares = softmax(scores);
    const Tensor mixed = round(at::matmul(round(shares), v));
    const Tensor merged =
        has(Bug::kHeadsUnmerged) ? mixed.permute({0, 2, 3, 1}) : mixed.transpose(1, 2);
    return round(
        apply(merged.reshape({count(), rows_, m_.shape.q_width()}), matrix_of(w.o_proj, 3)));
  }

  // --- head ---

  Tensor head(const Tensor& h) const {
    const Tensor x =
        has(Bug::kFinalNormMissing)
            ? h
            : norm(h, m_.final_norm, has(Bug::kNormUnweighted) || has(Bug::kFinalNormUnweighted));
    const bool other = has(Bug::kHeadOfEmbedding);
    Tensor matrix = other ? m_.embed : m_.lm_head;
    if (has(Bug::kHeadTransposed)) matrix = matrix.reshape({matrix.size(1), matrix.size(0)}).t();
    const Tensor logits = apply(x, matrix);
    if (!has(Bug::kHeadShifted)) return logits;
    return logits.roll(static_cast<int64_t>(value(Bug::kHeadShifted, 0)), -1);
  }

  const ModelTensors& m_;
  const Rope& rope_;
  const std::span<const ObservedRun> runs_;
  const std::span<const Deviation> bugs_;
  const bool rounded_;
  int64_t rows_ = 0;  // of the longest run
  Tensor decoded_;    // [runs, 1], the first row that decode() computed
  // The same in every layer.
  Angles query_angles_, key_angles_;
  Tensor unseen_;                     // [runs, 1, rows, rows]
  Tensor kv_of_keys_, kv_of_values_;  // [heads]
};

Tensor DeviantModel::logits(std::span<const ObservedRun> runs, std::span<const Deviation> bugs,
                            bool rounded) const {
  return Pass(m_, rope_, runs, bugs, rounded).logits();
}

}  // namespace mkbench
