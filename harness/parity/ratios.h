// The fidelity ratios of parity.md: how far an engine's logits lie from T's, against the error of
// the bf16 baseline B'.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "references/greedy_reference.h"

namespace mkbench {

// Largest ratios that pass.
struct RatioLimits {
  double rms = 1.25, step = 3, inf = 2, kl = 1.5;
};

struct Ratios {
  double rms = 0;   // sqrt( sum |e^K|^2 / sum |e^B'|^2 )
  double step = 0;  // max |e^K|_2 / median |e^B'|_2
  double inf = 0;   // max |e^K|_inf / max |e^B'|_inf, over T's top ids
  double kl = 0;    // sum KL(p^T||p^K) / (sum KL(p^T||p^B') + 1e-6), top ids and one rest bucket
  std::string worst_step;  // the one that gives `step`
};

// Error of one row of logits against T's step.
struct StepError {
  double squared = 0;  // |e|_2^2, estimated from the sketches
  double inf_top = 0;  // |e|_inf over T's top ids
  double kl = 0;
};

// Mean and log-sum-exp of logits [vocab], in double.
double mean_of(const float* logits, int vocab);
double logsumexp_of(const float* logits, int vocab);

// KL(p^T || p) over T's top ids and one bucket for the rest.
double divergence_of(const ReferenceStep& step, const float* logits, double logsumexp);

// `step` must hold a sketch of `projections` for this seed; logits [vocab] must be finite.
StepError error_of(const ReferenceStep& step, const float* logits, int vocab, uint64_t sketch_seed,
                   int projections);

class RatioSums {
 public:
  // `where` names the step in messages.
  void add(const ReferenceStep& step, const StepError& error, const std::string& where);
  // Nothing where B' has no error at all: then nothing can be divided by.
  std::optional<Ratios> ratios() const;

 private:
  double squared_ = 0, baseline_squared_ = 0;
  double largest_squared_ = 0, inf_ = 0, baseline_inf_ = 0, kl_ = 0, baseline_kl_ = 0;
  std::string worst_step_;
  std::vector<double> baseline_norms_;
};

}  // namespace mkbench
