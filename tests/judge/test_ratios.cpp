#include <cmath>
#include <vector>

#include "harness/judge/ratios.h"
#include "references/base/bf16.h"
#include "tests/support/catch2.h"

using namespace mkbench;

namespace {

constexpr int kVocab = 40, kTop = 32;

// 32 logits that bf16 does not hold, then 8 lower ones that it does.
std::vector<float> truth() {
  std::vector<float> z(kVocab, -1.0F);
  for (int i = 0; i < kTop; ++i)
    z[static_cast<size_t>(i)] = 4.003F - 0.101F * static_cast<float>(i);
  return z;
}

ReferenceStep step_of(const std::vector<float>& z) {
  ReferenceStep step;
  for (int i = 0; i < kTop; ++i) step.top_ids.push_back(i);
  step.top_logits.assign(z.begin(), z.begin() + kTop);
  step.logsumexp = logsumexp_of(z.data(), kVocab);
  step.baseline_error_norm = 1;
  return step;
}

std::vector<float> rounded(std::vector<float> z) {
  for (float& x : z) x = round_to_bf16(x);
  return z;
}

double divergence(const ReferenceStep& step, const std::vector<float>& z) {
  return divergence_of(step, z.data(), logsumexp_of(z.data(), kVocab));
}

}  // namespace

TEST_CASE("an error where the baseline has none is infinitely worse, and none is none") {
  ReferenceStep step;
  step.baseline_error_norm = 1;
  for (const double error : {0.0, 0.5}) {
    RatioSums sums;
    sums.add("p", step, {.squared = 1, .inf_top = error});
    CHECK(sums.ratios()->inf == (error > 0 ? HUGE_VAL : 0.0));
  }
}

TEST_CASE("errors of one prompt stand beside the larger of its baseline's error and the median") {
  RatioSums sums;
  const auto add = [&](const char* prompt, int position, double norm, double of_baseline) {
    ReferenceStep step;
    step.position = position;
    step.baseline_error_norm = of_baseline;
    sums.add(prompt, step, {.squared = norm * norm});
  };
  add("a", 4, 9, 2);
  add("b", 5, 7, 1);
  add("b", 6, 8, 5);
  const std::vector<ErrorAt> errors = sums.errors_of("b", 3);
  REQUIRE(errors.size() == 2);
  CHECK((errors[0].at == 5 && errors[0].error == 7 && errors[0].baseline_error == 1));
  CHECK((errors[0].limit == 3 * 2.0 && errors[1].at == 6 && errors[1].limit == 3 * 5.0));
  CHECK_FALSE(sums.errors_of("a", 0)[0].limit);
  CHECK(sums.errors_of("c", 3).empty());
}

TEST_CASE("divergence over the top ids and one bucket is the definition's") {
  const ReferenceStep step = step_of(truth());
  std::vector<float> z = truth();
  z[0] -= 2;
  double kl = 0, rest_t = 1, rest_k = 1;
  for (size_t i = 0; i < kTop; ++i) {
    const double p = std::exp(truth()[i] - step.logsumexp);
    const double q = std::exp(z[i] - logsumexp_of(z.data(), kVocab));
    kl += p * std::log(p / q);
    rest_t -= p;
    rest_k -= q;
  }
  kl += rest_t * std::log(rest_t / rest_k);
  CHECK(divergence(step, z) == Approx(kl).epsilon(1e-9));
  CHECK(kl > 0.1);
}

TEST_CASE("an engine that rounds its logits may diverge by that more, and no other may") {
  const ReferenceStep step = step_of(truth());
  double largest = 0;
  for (const float z : step.top_logits)
    largest = std::max(largest, std::abs(double{round_to_bf16(z)} - double{z}));
  const auto allowed = [&](const std::vector<float>& z, PrecisionClass precision) {
    const AllowedRounding found = allowed_rounding(step, z.data(), kVocab, precision);
    CHECK(found.inf == (found.kl > 0 ? largest : 0));
    return found.kl;
  };
  const double of_rounding = divergence(step, rounded(truth()));
  CHECK(of_rounding > 1e-7);
  CHECK(allowed(rounded(truth()), PrecisionClass::kBf16) == Approx(of_rounding));
  CHECK(allowed(rounded(truth()), PrecisionClass::kLossy) == Approx(of_rounding));
  CHECK(allowed(rounded(truth()), PrecisionClass::kFp32Accumulate) == 0);
  CHECK(allowed(rounded(truth()), PrecisionClass::kFp16) == 0);
  CHECK(allowed(truth(), PrecisionClass::kBf16) == 0);
  std::vector<float> but_one = rounded(truth());
  but_one.back() = truth()[1];
  CHECK(allowed(but_one, PrecisionClass::kBf16) == 0);
  // It is the truth's rounding, whatever the engine's logits are.
  CHECK(allowed(std::vector<float>(kVocab, 0.5F), PrecisionClass::kBf16) == Approx(of_rounding));
}

TEST_CASE("R_KL and R_inf divide by the baseline's error and what rounding costs together") {
  ReferenceStep step = step_of(truth());
  step.baseline_kl = 1e-3;
  step.baseline_error_inf_top = 0.5;
  RatioSums sums;
  sums.add("p", step,
           {.squared = 1, .inf_top = 1, .kl = 4e-3, .rounding = {.kl = 3e-3, .inf = 0.25}});
  CHECK(sums.ratios()->kl == Approx(4e-3 / (4e-3 + 1e-6)));
  CHECK(sums.ratios()->inf == Approx(1 / 0.75));
}
