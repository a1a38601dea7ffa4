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
  double rms = 0;  // sqrt( sum |e^K|^2 / sum |e^B'|^2 )
  // max over steps of |e^K|_2 / max(|e^B'|_2 of that step, median |e^B'|_2). Over the median alone
  // B' itself reaches 5.9 on `tiny`: its error varies that much between known and unknown text.
  double step = 0;
  double inf = 0;  // max |e^K|_inf / max |e^B'|_inf, over T's top ids
  double kl = 0;   // sum KL(p^T||p^K) / (sum KL(p^T||p^B') + 1e-6), top ids and one rest bucket
  std::string worst_prompt;  // the step that gives `step`
  int worst_position = -1;
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
  void add(const std::string& prompt, const ReferenceStep& step, const StepError& error);
  // Nothing where B' has no error at all: then nothing can be divided by.
  std::optional<Ratios> ratios() const;

 private:
  struct Step {
    double norm = 0, baseline_norm = 0;
    std::string prompt;
    int position = 0;
  };
  double inf_ = 0, baseline_inf_ = 0, kl_ = 0, baseline_kl_ = 0;
  std::vector<Step> steps_;
};

}  // namespace mkbench
