// The fidelity ratios: the error of an engine's logits against the truth's, over the error of the
// baseline with an fp32 head (the denominators below are that baseline's).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "harness/report/report.h"
#include "references/engine.h"
#include "references/greedy_reference.h"

namespace mkbench {

// Largest ratios that pass; 0: reported, not judged.
struct RatioLimits {
  double rms = 0, step = 0, inf = 0, kl = 0;
  double sweep = 0;  // as `step`, for one cache length of the sweep
};

// The limits of a precision class (references/engine.h), today's or those of an older report. They
// follow from the ratios of legitimate decoders of the class (reports/limits, dev/ratio_limits.py).
// Class lossy has bf16's limit of R_KL and no other.
RatioLimits limits_of(PrecisionClass precision, int schema_minor = kReportSchemaMinor);

struct Ratios {
  double rms = 0;  // sqrt(sum |error|^2 / sum |baseline error|^2)
  // Maximum over steps of |error| / max(|baseline error| of that step, median |baseline error|).
  // Divided by the median alone, the baseline itself would reach 5.9 on `tiny`: its error varies
  // that much between known and unknown text.
  double step = 0;
  // Largest |error| of one logit, among the truth's top ids, over the largest of the baseline's and
  // allowed_rounding() together.
  double inf = 0;
  // Sum of KL(truth || engine) / (sum of KL(truth || baseline) + allowed_rounding() + 1e-6), over
  // the truth's top ids and one bucket for the rest.
  double kl = 0;
  std::string worst_prompt;  // with worst_position: where `step` is reached
  int worst_position = -1;
};

// What rounding the truth's top logits to bf16 costs: KL(truth || rounded), and the largest change of
// one of them.
struct AllowedRounding {
  double kl = 0, inf = 0;
};

// Error e of one row of logits against a step of the truth, both rows less their means.
struct StepError {
  double squared = 0;  // |e|_2^2, estimated from the sketches
  double inf_top = 0;  // largest |e| over the truth's top ids
  double kl = 0;
  AllowedRounding rounding{};
};

// Mean and log-sum-exp of logits [vocab], in double.
double mean_of(const float* logits, int vocab);
double logsumexp_of(const float* logits, int vocab);

// 2-norm of the difference of two rows of logits, each less its mean.
double centred_distance(std::span<const float> x, std::span<const float> y);

// KL(truth || logits) over the truth's top ids and one bucket for the rest.
double divergence_of(const ReferenceStep& step, const float* logits, double logsumexp);

// The baseline keeps its logits in fp32, so an engine whose class lets it round them has this in
// addition to the baseline's error. In models of few layers, and where the baseline's error is small,
// it is most of the error. 0 for classes fp32-accumulate and fp16, and if not all of logits [vocab] are bf16
// numbers.
AllowedRounding allowed_rounding(const ReferenceStep& step, const float* logits, int vocab,
                                 PrecisionClass precision);

// `step` must hold a sketch of `projections` for this seed; logits [vocab] must be finite.
StepError error_of(const ReferenceStep& step, const float* logits, int vocab, uint64_t sketch_seed,
                   int projections);

class RatioSums {
 public:
  void add(const std::string& prompt, const ReferenceStep& step, const StepError& error);
  // Empty if the baseline has no error at all, because then there is no denominator.
  std::optional<Ratios> ratios() const;
  // Errors of the prompt's steps with the limit of each, as `step` above is judged; without one if
  // `limit` is 0.
  std::vector<ErrorAt> errors_of(const std::string& prompt, double limit) const;

 private:
  struct Step {
    double norm = 0, baseline_norm = 0;
    std::string prompt;
    int position = 0;
  };
  double middle() const;  // median of the baseline's errors

  double inf_ = 0, allowed_inf_ = 0, kl_ = 0, allowed_kl_ = 0;
  std::vector<Step> steps_;
};

}  // namespace mkbench
