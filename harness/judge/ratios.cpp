#include "harness/judge/ratios.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "references/base/bf16.h"
#include "references/base/median.h"

namespace mkbench {
namespace {

// Keeps the sum of the baseline's divergences from being 0 if every step is certain.
constexpr double kLeastDivergence = 1e-6;

// Limits by the minor version of the report's schema that introduced them. Version 0's were set by
// hand, when reports named no class; version 6's follow from ratios of legitimate decoders.
struct LimitsSince {
  int schema_minor;
  RatioLimits bf16, fp32_accumulate, lossy;
  RatioLimits fp16 = {};  // no report of version 0 names it
};
constexpr LimitsSince kLimits[] = {
    {.schema_minor = 0,
     .bf16 = {.rms = 1.25, .step = 3, .inf = 2, .kl = 1.5, .sweep = 3},
     .fp32_accumulate = {.rms = 0.35, .step = 1, .inf = 2, .kl = 1.5, .sweep = 1.25},
     .lossy = {.kl = 1.5}},
    {.schema_minor = 6,
     .bf16 = {.rms = 1.5, .step = 7.8, .inf = 2.5, .kl = 2.5, .sweep = 7.4},
     .fp32_accumulate = {.rms = 0.37, .step = 1.4, .inf = 0.51, .kl = 0.13, .sweep = 1.9},
     .lossy = {.kl = 2.5},
     .fp16 = {.rms = 0.18, .step = 0.65, .inf = 0.37, .kl = 0.046, .sweep = 1.1}},
};

// KL(truth || q), where log_q(i) is q's log probability of the truth's i-th top id.
template <typename LogQ>
double divergence_over_top(const ReferenceStep& step, const LogQ& log_q) {
  double kl = 0, truth_rest = 1, rest = 1;
  for (size_t i = 0; i < step.top_ids.size(); ++i) {
    const double log_truth = step.top_logits[i] - step.logsumexp;
    kl += std::exp(log_truth) * (log_truth - log_q(i));
    truth_rest -= std::exp(log_truth);
    rest -= std::exp(log_q(i));
  }
  // A rest that rounding made negative counts as empty, as in scripts/capture_reference.py.
  constexpr double kLeastRest = 1e-300;  // keeps the logarithm finite
  if (truth_rest > 0) kl += truth_rest * std::log(truth_rest / std::max(rest, kLeastRest));
  return std::max(kl, 0.0);
}

}  // namespace

RatioLimits limits_of(PrecisionClass precision, int schema_minor) {
  const LimitsSince* row = kLimits;
  for (const LimitsSince& later : kLimits) {
    if (later.schema_minor <= schema_minor) row = &later;
  }
  switch (precision) {
    case PrecisionClass::kFp32Accumulate:
      return row->fp32_accumulate;
    case PrecisionClass::kLossy:
      return row->lossy;
    case PrecisionClass::kFp16:
      return row->fp16;
    case PrecisionClass::kBf16:
      break;
  }
  return row->bf16;
}

double mean_of(const float* logits, int vocab) {
  return std::accumulate(logits, logits + vocab, 0.0) / vocab;
}

double logsumexp_of(const float* logits, int vocab) {
  const double top = *std::max_element(logits, logits + vocab);
  double sum = 0;
  for (int i = 0; i < vocab; ++i) sum += std::exp(logits[i] - top);
  return top + std::log(sum);
}

double centred_distance(std::span<const float> x, std::span<const float> y) {
  const int vocab = static_cast<int>(x.size());
  const double shift = mean_of(x.data(), vocab) - mean_of(y.data(), vocab);
  double squared = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double difference = double{x[i]} - double{y[i]} - shift;
    squared += difference * difference;
  }
  return std::sqrt(squared);
}

double divergence_of(const ReferenceStep& step, const float* logits, double logsumexp) {
  return divergence_over_top(step, [&](size_t i) { return logits[step.top_ids[i]] - logsumexp; });
}

AllowedRounding allowed_rounding(const ReferenceStep& step, const float* logits, int vocab,
                                 PrecisionClass precision) {
  const bool rounded =
      std::all_of(logits, logits + vocab, [](float z) { return z == round_to_bf16(z); });
  const bool allows = precision == PrecisionClass::kBf16 || precision == PrecisionClass::kLossy;
  if (!allows || !rounded) return {};
  AllowedRounding allowed;
  // The truth's sum of exponentials, with its top logits rounded, over the unrounded sum.
  double sum = 1;
  for (const float z : step.top_logits) {
    const float near = round_to_bf16(z);
    sum += std::exp(near - step.logsumexp) - std::exp(z - step.logsumexp);
    allowed.inf = std::max(allowed.inf, std::abs(double{near} - double{z}));
  }
  const double logsumexp = step.logsumexp + std::log(sum);
  allowed.kl = divergence_over_top(
      step, [&](size_t i) { return round_to_bf16(step.top_logits[i]) - logsumexp; });
  return allowed;
}

StepError error_of(const ReferenceStep& step, const float* logits, int vocab, uint64_t sketch_seed,
                   int projections) {
  StepError error;
  const std::vector<float> sketch = sketch_of(logits, vocab, sketch_seed, projections);
  // E[(r . e)^2] = |e|^2 for an error e and a vector r of independent signs, so the mean over
  // projections estimates |e|^2.
  for (size_t p = 0; p < step.sketch.size(); ++p) {
    const double difference = double{sketch[p]} - double{step.sketch[p]};
    error.squared += difference * difference / static_cast<double>(step.sketch.size());
  }
  const double mean = mean_of(logits, vocab);
  for (size_t i = 0; i < step.top_ids.size(); ++i) {
    const double e = (logits[step.top_ids[i]] - mean) - (step.top_logits[i] - step.mean);
    error.inf_top = std::max(error.inf_top, std::abs(e));
  }
  error.kl = divergence_of(step, logits, logsumexp_of(logits, vocab));
  return error;
}

void RatioSums::add(const std::string& prompt, const ReferenceStep& step, const StepError& error) {
  inf_ = std::max(inf_, error.inf_top);
  allowed_inf_ = std::max(allowed_inf_, step.baseline_error_inf_top + error.rounding.inf);
  kl_ += error.kl;
  allowed_kl_ += step.baseline_kl + error.rounding.kl;
  steps_.push_back({std::sqrt(error.squared), step.baseline_error_norm, prompt, step.position});
}

double RatioSums::middle() const {
  std::vector<double> norms;
  for (const Step& s : steps_) norms.push_back(s.baseline_norm);
  return median(norms);
}

std::vector<ErrorAt> RatioSums::errors_of(const std::string& prompt, double limit) const {
  std::vector<ErrorAt> errors;
  const double least = middle();
  for (const Step& s : steps_) {
    if (s.prompt != prompt) continue;
    errors.push_back({s.position, s.norm, s.baseline_norm, std::nullopt});
    if (limit > 0) errors.back().limit = limit * std::max(least, s.baseline_norm);
  }
  return errors;
}

std::optional<Ratios> RatioSums::ratios() const {
  double squared = 0, baseline_squared = 0;
  for (const Step& s : steps_) {
    squared += s.norm * s.norm;
    baseline_squared += s.baseline_norm * s.baseline_norm;
  }
  if (!(baseline_squared > 0)) return std::nullopt;
  const double middle = this->middle();
  const auto over = [](double error, double of_baseline) {
    return of_baseline > 0 ? error / of_baseline
           : error > 0     ? std::numeric_limits<double>::infinity()
                           : 0.0;
  };
  Ratios r;
  r.rms = std::sqrt(squared / baseline_squared);
  for (const Step& s : steps_) {
    const double step = over(s.norm, std::max(middle, s.baseline_norm));
    if (r.worst_position >= 0 && step <= r.step) continue;
    r.step = step;
    r.worst_prompt = s.prompt;
    r.worst_position = s.position;
  }
  r.inf = over(inf_, allowed_inf_);
  r.kl = kl_ / (allowed_kl_ + kLeastDivergence);
  return r;
}

}  // namespace mkbench
