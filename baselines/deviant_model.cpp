#include "baselines/deviant_model.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>

#include "baselines/hooks.h"
#include "references/model/rope.h"

namespace mkbench {

using at::Tensor;

// Sequences with different bugs that go through the layers together have at most this many rows, which
// bounds the memory; a longer one goes alone.
constexpr int64_t kRowsTogether = 1024;

Tensor turn_halves(const Tensor& x, const Tensor& cos, const Tensor& sin) {
  const int64_t n = cos.size(-1);
  const Tensor a = x.narrow(-1, 0, n), b = x.narrow(-1, n, n);
  const Tensor rest = x.narrow(-1, 2 * n, x.size(-1) - 2 * n);
  return at::cat({a * cos - b * sin, b * cos + a * sin, rest}, -1);
}

Tensor rms_normed(const Tensor& x, const Tensor& weight, double eps) {
  return x * at::rsqrt(x.pow(2).mean(-1, true) + eps) * weight;
}

// Sequences through the model, padded at their ends to the longest. Hidden states are
// [runs, rows, hidden], heads [runs, heads, rows, head_dim].
class DeviantModel::Pass {
 public:
  Pass(const ModelTensors& m, const Rope& rope, std::span<const ObservedRun> runs,
       std::span<const Deviation> bugs, bool rounded)
      : m_(m), rope_(rope), bugs_(bugs), rounded_(rounded) {
    std::vector<float> decoded;
    for (const ObservedRun& run : runs) {
      Sequence s{run.ids, run.prompt, static_cast<int64_t>(run.found.size())};
      each(&Hooks::ids, 0, [&](const auto& edit) { edit(s.ids, s.prompt); });
      rows_ = std::max(rows_, static_cast<int64_t>(s.ids.size()));
      decoded.push_back(static_cast<float>(s.prompt - 1));
      runs_.push_back(std::move(s));
    }
    decoded_ = at::tensor(decoded).to(m.real.device()).view({count(), 1});
    const Tensor at = positions();
    query_angles_ = angles(at + sum(&Hooks::query_shift));
    key_angles_ = angles(at);
    see();
    kv_of_keys_ = kv_heads(false);
    kv_of_values_ = kv_heads(true);
  }

  Tensor logits() {
    Tensor h = embed();
    const int layers = static_cast<int>(m_.layers.size());
    for (int l = 0; l < layers; ++l) h = layer(l, h);
    return head(h.flatten(0, 1).index_select(0, steps()));
  }

  // DeviantModel::each_alone(). This pass has one run and no bugs.
  void each_alone(std::span<const Deviation> bugs, const GiveLogits& give) {
    const auto most = static_cast<size_t>(std::max(int64_t{1}, kRowsTogether / rows_));
    const int layers = static_cast<int>(m_.layers.size());
    Tensor h = embed();
    int l = 0;  // h goes into this layer
    for (size_t i = 0, first = 0; i < bugs.size(); first = i) {
      for (; l < bugs[i].layer; ++l) h = layer(l, h);
      std::vector<Tensor> states;
      for (; i < bugs.size() && bugs[i].layer == l && i - first < most; ++i) {
        Pass with_bug = *this;  // knows K and V of the layer before
        with_bug.bugs_ = bugs.subspan(i, 1);
        states.push_back(with_bug.layer(l, h));
      }
      Pass behind = *this;
      Tensor all = at::cat(states);
      for (int later = l + 1; later < layers; ++later) all = behind.layer(later, all);
      const Tensor logits = head(all.index_select(1, steps()));
      for (size_t bug = first; bug < i; ++bug) {
        if (!give(bug, logits[static_cast<int64_t>(bug - first)])) return;
      }
    }
  }

 private:
  struct Sequence {
    std::vector<int32_t> ids;
    int prompt;
    int64_t steps;  // the last rows, whose logits are wanted
  };
  struct Angles {
    Tensor cos, sin;  // [runs, 1, rows, rotated dimensions / 2]
  };

  // --- hooks ---

  template <typename F, typename Use>
  void each(F Hooks::*hook, int layer, const Use& use) const {
    for (const Deviation& d : bugs_) {
      const F& set = *d.hooks.*hook;
      if (set && (d.layer < 0 || d.layer == layer)) use(set);
    }
  }
  // The first that is set, or nullptr.
  template <typename F>
  const F* find(F Hooks::*hook, int layer = 0) const {
    const F* found = nullptr;
    each(hook, layer, [&](const F& set) { found = found != nullptr ? found : &set; });
    return found;
  }
  double sum(double Hooks::*value) const {
    double sum = 0;
    for (const Deviation& d : bugs_) sum += *d.hooks.*value;
    return sum;
  }
  double factor(double Hooks::*value) const {
    double product = 1;
    for (const Deviation& d : bugs_) product *= *d.hooks.*value;
    return product;
  }

  Tensor round(const Tensor& x) const { return rounded_ ? x.to(at::kBFloat16).to(at::kFloat) : x; }
  int64_t count() const { return static_cast<int64_t>(runs_.size()); }
  Tensor row_numbers() const { return at::arange(rows_, m_.real); }
  Tensor on_device(const std::vector<int64_t>& numbers) const {
    return at::tensor(numbers, at::kLong).to(m_.real.device());
  }

  // The rows whose logits are wanted, counted through all runs.
  Tensor steps() const {
    int late = 0;
    for (const Deviation& d : bugs_) late += d.hooks->rows_late;
    std::vector<int64_t> steps;
    int64_t begin = 0;
    for (const Sequence& run : runs_) {
      const auto end = static_cast<int64_t>(run.ids.size());
      for (int64_t r = end - run.steps; r < end; ++r)
        steps.push_back(begin + std::max(int64_t{0}, r - late));
      begin += rows_;
    }
    return on_device(steps);
  }

  Tensor embed() const {
    std::vector<int64_t> ids;
    for (const Sequence& run : runs_) {
      ids.insert(ids.end(), run.ids.begin(), run.ids.end());
      ids.resize(ids.size() + static_cast<size_t>(rows_) - run.ids.size());
    }
    const auto* other = find(&Hooks::embedding);
    const Tensor& table = other != nullptr ? (*other)(m_) : m_.embed;
    const Tensor rows = at::embedding(table, on_device(ids)).to(at::kFloat);
    return m_.scaled(rows).view({count(), rows_, -1}) * factor(&Hooks::embedding_factor);
  }

  Tensor norm(const Tensor& x, const Tensor& weight, NormOf of, int l) const {
    if (const auto* other = find(&Hooks::norm, l)) return round((*other)(x, weight, m_.eps, of));
    return round(round(x * at::rsqrt(x.pow(2).mean(-1, true) + m_.eps)) * weight);
  }

  Tensor layer(int l, const Tensor& h) {
    LayerTensors w = m_.layers[static_cast<size_t>(l)];
    each(&Hooks::weights, l, [&](const auto& edit) { edit(w, m_, l); });
    const LayerParts parts{
        .norm = [&](const Tensor& x) { return norm(x, w.input_norm, NormOf::kAttention, l); },
        .attention = [&](const Tensor& x) { return attention(w, l, x); },
        .mlp_norm =
            [&](const Tensor& x) { return norm(x, w.post_attention_norm, NormOf::kMlp, l); },
        .mlp = [&](const Tensor& x) { return mlp(w, l, x); },
        .add = [&](const Tensor& a, const Tensor& b) { return round(a + b); }};
    if (const auto* other = find(&Hooks::layer, l)) return (*other)(h, parts);
    const Tensor a = parts.add(h, parts.attention(parts.norm(h)));
    return parts.add(a, parts.mlp(parts.mlp_norm(a)));
  }

  Tensor apply(const Tensor& x, const Tensor& matrix) const {
    return at::linear(x, matrix.to(at::kFloat));
  }

  Tensor mlp(const LayerTensors& w, int l, const Tensor& x) const {
    const Tensor gate = round(apply(x, w.gate_proj)), up = round(apply(x, w.up_proj));
    const auto* other = find(&Hooks::product, l);
    const Tensor product = other != nullptr ? (*other)(gate, up) : round(m_.activate(gate)) * up;
    return round(apply(round(product), w.down_proj));
  }

  // --- RoPE ---

  // [runs, rows]
  Tensor positions() const {
    Tensor at = row_numbers().view({1, rows_});
    std::vector<float> first;  // row of the last call
    for (const Sequence& run : runs_)
      first.push_back(static_cast<float>(static_cast<int64_t>(run.ids.size()) - run.steps));
    const Tensor call = at::tensor(first).to(m_.real.device()).view({count(), 1});
    each(&Hooks::positions, 0, [&](const auto& changed) { at = changed(at, decoded_, call); });
    return at.expand({count(), rows_});
  }

  Angles angles(const Tensor& at) const {
    Rope rope = rope_;
    each(&Hooks::rope, 0, [&](const auto& edit) { edit(rope); });
    const int64_t dim = m_.shape.head_dim;
    Tensor exponents = at::arange(0, dim, 2, at::kFloat) / dim;
    each(&Hooks::exponents, 0, [&](const auto& changed) { exponents = changed(exponents); });
    const Tensor unscaled = at::reciprocal(at::pow(rope.theta, exponents));
    Tensor found = unscaled.clone();
    scale_frequencies(rope, {found.mutable_data_ptr<float>(), static_cast<size_t>(found.numel())});
    each(&Hooks::frequencies, 0, [&](const auto& changed) { found = changed(found, unscaled); });
    const Tensor all = at.view({count(), 1, rows_, 1}) * found.to(m_.real.device());
    return {all.cos(), all.sin()};
  }

  Tensor turn(const Tensor& x, bool queries) const {
    const Angles& a = queries ? query_angles_ : key_angles_;
    const auto* other = find(&Hooks::turn);
    return round(other != nullptr ? (*other)(x, a.cos, a.sin, queries)
                                  : turn_halves(x, a.cos, a.sin));
  }

  // --- attention ---

  // x [runs, rows, hidden] -> [runs, heads, rows, head_dim]; `first`: of the projection's rows among
  // those of q, k and v, which the biases stand for.
  Tensor project(const LayerTensors& w, const Tensor& x, const Tensor& matrix, int64_t first,
                 int64_t heads) const {
    Tensor all = apply(x, matrix);
    if (w.qkv_bias.defined()) all = all + w.qkv_bias.narrow(0, first, matrix.size(0));
    return round(all).view({-1, x.size(-2), heads, m_.shape.head_dim}).transpose(1, 2);
  }

  // QK-norm, if the model has it, and RoPE.
  Tensor prepare(const Tensor& x, const Tensor& weight, bool queries, int l) const {
    bool late = false;
    for (const Deviation& d : bugs_) late |= d.hooks->norms_late;
    const auto normed = [&](const Tensor& y) {
      return weight.defined() ? norm(y, weight, queries ? NormOf::kQueries : NormOf::kKeys, l) : y;
    };
    return late ? normed(turn(x, queries)) : turn(normed(x), queries);
  }

  // Sets which rows (the third dimension) see which others, and who sees a row of zeros.
  void see() {
    const Tensor i = row_numbers().view({1, 1, rows_, 1}), j = row_numbers().view({1, 1, 1, rows_});
    const Tensor decoded = decoded_.view({count(), 1, 1, 1});
    const auto* seen = find(&Hooks::seen);
    unseen_ = ~(seen != nullptr ? (*seen)(i, j, decoded) : j <= i);
    const auto* zero = find(&Hooks::zero_row);
    if (zero != nullptr) zero_unseen_ = ~(*zero)(i, decoded);
  }

  // Which kv head each query head reads.
  Tensor kv_heads(bool of_values) const {
    std::vector<int64_t> heads;
    const auto* other = find(&Hooks::kv_head);
    for (int64_t h = 0; h < m_.shape.heads; ++h)
      heads.push_back(other != nullptr ? (*other)(h, of_values) : h / m_.shape.gqa_group());
    return on_device(heads);
  }

  Heads heads(const LayerTensors& w, int l, const Tensor& x) {
    const ModelShape& s = m_.shape;
    const int64_t q = s.q_width(), kv = s.kv_width();
    Heads all{.q = prepare(project(w, x, w.q_proj, 0, s.heads), w.q_norm, true, l),
              .k = prepare(project(w, x, w.k_proj, q, s.kv_heads), w.k_norm, false, l),
              .v = project(w, x, w.v_proj, q + kv, s.kv_heads),
              .k_before = k_before_,
              .v_before = v_before_,
              .weights = m_.layers[static_cast<size_t>(l)],
              .turn = [this](const Tensor& y) { return turn(y, false); },
              .eps = m_.eps};
    k_before_ = all.k, v_before_ = all.v;
    each(&Hooks::heads, l, [&](const auto& edit) { edit(all); });
    return all;
  }

  Tensor attention(const LayerTensors& w, int l, const Tensor& x) {
    const Heads all = heads(w, l, x);
    const Tensor keys = all.k.index_select(1, kv_of_keys_);
    Tensor v = all.v.index_select(1, kv_of_values_);
    const double scale = m_.scaling * factor(&Hooks::score_factor);
    const double never = -std::numeric_limits<double>::infinity();
    Tensor scores = at::matmul(all.q, keys.transpose(2, 3)) * scale;
    scores = scores.masked_fill(unseen_, never);
    if (zero_unseen_.defined()) {  // a row of K and V that holds zeros
      const Tensor zero = at::zeros({count(), m_.shape.heads, rows_, 1}, m_.real);
      scores = at::cat({scores, zero.masked_fill(zero_unseen_, never)}, -1);
      v = at::cat({v, at::zeros({count(), v.size(1), 1, v.size(3)}, m_.real)}, 2);
    }
    const auto* other = find(&Hooks::softmax);
    const Tensor shares = other != nullptr ? (*other)(scores) : at::softmax(scores, -1);
    const Tensor mixed = round(at::matmul(round(shares), v)).transpose(1, 2);
    return round(apply(mixed.flatten(2), w.o_proj));
  }

  // --- head ---

  Tensor head(const Tensor& h) const {
    const Tensor x = norm(h, m_.final_norm, NormOf::kHead, -1);
    const auto* other = find(&Hooks::head);
    Tensor logits = apply(x, other != nullptr ? (*other)(m_) : m_.lm_head);
    each(&Hooks::logits, 0, [&](const auto& edit) { logits = edit(logits); });
    return logits;
  }

  const ModelTensors& m_;
  const Rope& rope_;
  std::vector<Sequence> runs_;
  std::span<const Deviation> bugs_;
  const bool rounded_;
  int64_t rows_ = 0;  // of the longest run
  Tensor decoded_;    // [runs, 1], the first row that decode() computed
  // The same in every layer.
  Angles query_angles_, key_angles_;
  Tensor unseen_, zero_unseen_;       // [runs, 1, rows, rows], and [runs, 1, rows, 1] or undefined
  Tensor kv_of_keys_, kv_of_values_;  // [heads]
  Tensor k_before_, v_before_;        // of the layer that ran last
};

Tensor DeviantModel::logits(std::span<const ObservedRun> runs, std::span<const Deviation> bugs,
                            bool rounded) const {
  return Pass(m_, rope_, runs, bugs, rounded).logits();
}

void DeviantModel::each_alone(const ObservedRun& run, std::span<const Deviation> bugs,
                              const GiveLogits& give) const {
  Pass(m_, rope_, {&run, 1}, {}, false).each_alone(bugs, give);
}

}  // namespace mkbench
