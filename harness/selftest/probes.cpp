#include "harness/selftest/probes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "references/base/error.h"
#include "references/oracle.h"
#include "references/weight_edit.h"

namespace mkbench {
namespace {

constexpr int32_t kFirstId = 97;  // 'a' in the tiny checkpoints
constexpr int kContext = 128;
// Largest relative error of logits: if K and V are rounded to bf16 (up to 0.4 % a rounding), and if
// engine and truth differ only by the order of fp32 sums.
constexpr double kBf16Error = 0.02, kFp32Error = 1e-5;

std::vector<float> logits_of_step(Engine& e, int32_t id, int vocab) {
  std::vector<float> logits(static_cast<size_t>(vocab), std::numeric_limits<float>::quiet_NaN());
  e.step(id, logits.data());
  return logits;
}

// Root mean square of a - b, divided by that of `b`; infinite if any value is not finite.
double relative_error(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0, size = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double d = double{a[i]} - double{b[i]};
    difference += d * d;
    size += double{b[i]} * double{b[i]};
  }
  const double ratio = std::sqrt(difference / size);
  return std::isfinite(ratio) ? ratio : std::numeric_limits<double>::infinity();
}

// Why a probe failed; empty if the value is within its limit. NaN is over every limit.
std::string over_limit(double value, double limit, const std::string& what) {
  return value <= limit ? "" : fmt::format("{}: {:.3g}, wanted at most {:.3g}", what, value, limit);
}

// `w` cut to its first layer.
ModelWeights one_layer(ModelWeights w) {
  w.config.shape.layers = 1;
  w.layers.resize(1);
  return w;
}

// Hidden states so small that eps decides: the mean square of the embedding is eps.
std::string probe_small_norm(const MakeEngine& make, const ModelWeights& tiny) {
  constexpr double kEps = 1e-6;  // rms_norm_eps of the model
  WeightEdit edit(one_layer(tiny));
  edit.untie();
  Matrix& embedding = edit.weights().embed_tokens;
  double squares = 0;
  for (const Bf16 x : embedding.row(kFirstId)) squares += double{to_float(x)} * to_float(x);
  const double rms = std::sqrt(squares / embedding.cols);
  const auto factor = static_cast<float>(std::sqrt(kEps) / rms);
  edit.each_value(embedding, [factor](float x) { return x * factor; });
  const std::vector<float> truth = Oracle(edit.weights(), 1).step(kFirstId);
  const auto e = make(edit.weights(), kContext);
  return over_limit(relative_error(logits_of_step(*e, kFirstId, edit.shape().vocab), truth),
                    kBf16Error, "relative error of logits");
}

// Scores beyond what exp() can hold, and scores far below zero: softmax has to subtract their
// maximum.
std::string probe_large_scores(const MakeEngine& make, const ModelWeights& tiny) {
  double worst = 0;
  for (const float factor : {64.0f, -64.0f}) {
    WeightEdit edit(one_layer(tiny));
    edit.each_value(edit.weights().layers[0].q_norm, [factor](float x) { return x * factor; });
    Oracle oracle(edit.weights(), 1);
    const auto e = make(edit.weights(), kContext);
    // At the first position the softmax weight is 1, whatever the score is.
    const std::vector<float> truth = oracle.step(kFirstId);
    worst =
        std::max(worst, relative_error(logits_of_step(*e, kFirstId, edit.shape().vocab), truth));
    const std::vector<float> second = logits_of_step(*e, kFirstId + 1, edit.shape().vocab);
    if (!std::all_of(second.begin(), second.end(), [](float x) { return std::isfinite(x); })) {
      worst = std::numeric_limits<double>::infinity();
    }
  }
  return over_limit(worst, kBf16Error, "relative error of logits");
}

// Attention over equal values must give that value at every context: the weights sum to one.
std::string probe_weights_sum(const MakeEngine& make, const ModelWeights& tiny) {
  const ModelWeights w = one_layer(tiny);
  const int vocab = w.config.shape.vocab;
  const auto e = make(w, kContext);
  const std::vector<float> alone = logits_of_step(*e, kFirstId, vocab);
  double worst = 0;
  for (int t = 1; t < kContext; ++t) {
    worst = std::max(worst, relative_error(logits_of_step(*e, kFirstId, vocab), alone));
  }
  return over_limit(worst, kFp32Error, "logits of one id, repeated: largest relative change");
}

// Without attention nothing is rounded to bf16, so engine and truth differ only by the order of
// their fp32 sums.
std::string probe_fp32_sums(const MakeEngine& make, const ModelWeights& tiny) {
  WeightEdit edit(tiny);
  for (LayerWeights& layer : edit.weights().layers) {
    edit.each_value(layer.o_proj, [](float) { return 0.0f; });
  }
  Oracle oracle(edit.weights(), 1);
  const auto e = make(edit.weights(), kContext);
  double worst = 0;
  for (const int32_t id : {kFirstId, kFirstId + 7, 32}) {
    const std::vector<float> truth = oracle.step(id);
    worst = std::max(worst, relative_error(logits_of_step(*e, id, edit.shape().vocab), truth));
  }
  return over_limit(worst, kFp32Error, "relative error of logits");
}

// Two decoders that take turns must not influence each other.
std::string probe_two_engines(const MakeEngine& make, const ModelWeights& tiny) {
  const ModelWeights w = one_layer(tiny);
  const int vocab = w.config.shape.vocab;
  constexpr int kSteps = 8;
  const auto alone = make(w, kContext);
  std::vector<std::vector<float>> wanted;
  for (int t = 0; t < kSteps; ++t) wanted.push_back(logits_of_step(*alone, kFirstId + t, vocab));
  const auto a = make(w, kContext), b = make(w, kContext);
  int different = 0;
  for (int t = 0; t < kSteps; ++t) {
    const std::vector<float> first = logits_of_step(*a, kFirstId + t, vocab);
    logits_of_step(*b, kFirstId - t, vocab);
    different += first != wanted[static_cast<size_t>(t)];
  }
  return over_limit(different, 0, "steps whose bits depend on another decoder");
}

// Ids outside of the vocabulary and steps beyond the context must be refused.
std::string probe_bad_ids(const MakeEngine& make, const ModelWeights& tiny) {
  const ModelWeights w = one_layer(tiny);
  constexpr int kRoom = 2;
  const auto e = make(w, kRoom);
  int accepted = 0;
  const auto refused = [&](const std::function<void()>& call) {
    try {
      e->reset();
      call();
      ++accepted;
    } catch (const Error& error) {
      accepted += error.kind() != ErrorKind::kBadInput;
    }
  };
  for (const int32_t id : {-1, w.config.shape.vocab, std::numeric_limits<int32_t>::max()}) {
    refused([&] { e->set_pending(id); });
    refused([&] { e->prefill(std::vector<int32_t>{kFirstId, id}); });
    refused([&] {
      const std::vector<int32_t> forced = {kFirstId, id};
      e->set_pending(kFirstId);
      e->decode(2, forced.data());
    });
  }
  refused([&] {
    e->set_pending(kFirstId);
    e->decode(kRoom + 1);
  });
  return over_limit(accepted, 0, "calls that were to be refused and were not");
}

struct Probe {
  std::string_view name;
  std::string (*run)(const MakeEngine&, const ModelWeights&);  // why it failed, or ""
};

constexpr Probe kProbes[] = {
    {"small_norm", probe_small_norm},   {"large_scores", probe_large_scores},
    {"weights_sum", probe_weights_sum}, {"fp32_sums", probe_fp32_sums},
    {"two_engines", probe_two_engines}, {"bad_ids", probe_bad_ids},
};

}  // namespace

std::vector<FailedProbe> run_probes(const MakeEngine& make, const ModelWeights& weights) {
  std::vector<FailedProbe> failed;
  for (const Probe& probe : kProbes) {
    std::string reason;
    try {
      reason = probe.run(make, weights);
    } catch (const Error& error) {
      reason = error.what();
    }
    if (!reason.empty()) failed.push_back({probe.name, std::move(reason)});
  }
  return failed;
}

}  // namespace mkbench
