#include "harness/selftest/gate_faults.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "references/error.h"
#include "references/synthetic.h"

namespace mkbench {
namespace {

using Shared = std::shared_ptr<const Recording>;
using Reports = std::vector<ParityReport>;

Reports judge_one(const Shared& recording, ReplayOptions options, const Judge& judge) {
  const auto engine = make_replay(recording, std::move(options));
  return {judge(*engine)};
}

Reports sound(const Shared& recording, const GreedyReference&, const Judge& judge) {
  return judge_one(recording, {}, judge);
}

// Another id at one step alone, at every step of a strict prompt in turn; the logits stay right.
Reports random_token(const Shared& recording, const GreedyReference& reference,
                     const Judge& judge) {
  constexpr size_t kPrompt = 1;
  Reports reports;
  for (size_t step = 0; step < reference.prompts[kPrompt].steps.size(); ++step) {
    const auto edit = [&](const ReplayedStep& at) {
      if (at.prompt != kPrompt || at.step != step) return;
      const auto vocab = static_cast<uint64_t>(recording->vocab);
      const uint64_t other = 1 + splitmix64(step) % (vocab - 1);
      *at.id = static_cast<int32_t>((static_cast<uint64_t>(*at.id) + other) % vocab);
    };
    reports.push_back(judge_one(recording, {.edit = edit}, judge)[0]);
  }
  return reports;
}

// The step that is least decided in the whole reference.
struct Place {
  size_t prompt = 0, step = 0;
  bool is(const ReplayedStep& at) const { return at.prompt == prompt && at.step == step; }
};

Place least_decided(const GreedyReference& reference) {
  Place place;
  double least = std::numeric_limits<double>::infinity();
  for (size_t p = 0; p < reference.prompts.size(); ++p) {
    const auto& steps = reference.prompts[p].steps;
    for (size_t t = 0; t < steps.size(); ++t) {
      if (steps[t].margin >= least) continue;
      least = steps[t].margin;
      place = {p, t};
    }
  }
  return place;
}

// Two equal logits, and the higher index of the two is emitted.
Reports highest_among_equals(const Shared& recording, const GreedyReference& reference,
                             const Judge& judge) {
  const Place place = least_decided(reference);
  const ReferenceStep& step = reference.prompts[place.prompt].steps[place.step];
  const auto edit = [&](const ReplayedStep& at) {
    if (!place.is(at)) return;
    const int32_t first = step.top_ids[0], second = step.top_ids[1];
    (*at.logits)[static_cast<size_t>(second)] = (*at.logits)[static_cast<size_t>(first)];
    *at.id = std::max(first, second);
  };
  return judge_one(recording, {.edit = edit}, judge);
}

// The runner-up of the least decided step, whose logit is not the largest.
Reports second_best(const Shared& recording, const GreedyReference& reference, const Judge& judge) {
  const Place place = least_decided(reference);
  const int32_t second = reference.prompts[place.prompt].steps[place.step].top_ids[1];
  const auto edit = [&](const ReplayedStep& at) {
    if (place.is(at)) *at.id = second;
  };
  return judge_one(recording, {.edit = edit}, judge);
}

Reports nan_logit(const Shared& recording, const GreedyReference&, const Judge& judge) {
  const auto edit = [](const ReplayedStep& at) {
    if (at.prompt == 0 && at.step == 0) at.logits->back() = std::nanf("");
  };
  return judge_one(recording, {.edit = edit}, judge);
}

// An argmax that compares with NaN and so answers 0.
Reports nan_gives_zero(const Shared& recording, const GreedyReference&, const Judge& judge) {
  const auto edit = [](const ReplayedStep& at) {
    if (at.prompt != 0 || at.step != 0) return;
    std::fill(at.logits->begin(), at.logits->end(), std::nanf(""));
    *at.id = 0;
  };
  return judge_one(recording, {.edit = edit}, judge);
}

Reports stuck_counter(const Shared& recording, const GreedyReference&, const Judge& judge) {
  return judge_one(recording, {.stuck_counter = true}, judge);
}

Reports stale_output(const Shared& recording, const GreedyReference&, const Judge& judge) {
  return judge_one(recording, {.stale_output = true}, judge);
}

Reports short_output(const Shared& recording, const GreedyReference&, const Judge& judge) {
  return judge_one(recording, {.missing_ids = 1}, judge);
}

// The last bit of one logit alternates from call to call.
Reports bits_differ(const Shared& recording, const GreedyReference&, const Judge& judge) {
  const auto edit = [](const ReplayedStep& at) {
    float& logit = at.logits->front();
    if (at.decode % 2 == 0) logit = std::nextafter(logit, 2 * std::abs(logit) + 1);
  };
  return judge_one(recording, {.edit = edit}, judge);
}

// Other ids when nobody asks for logits.
Reports other_without_logits(const Shared& recording, const GreedyReference& reference,
                             const Judge& judge) {
  const Place place = least_decided(reference);
  const int32_t second = reference.prompts[place.prompt].steps[place.step].top_ids[1];
  const auto edit = [&](const ReplayedStep& at) {
    if (place.is(at) && !at.with_logits) *at.id = second;
  };
  return judge_one(recording, {.edit = edit}, judge);
}

// An error of seeded signs: of one size on every logit of every step.
void noise_everywhere(const ReplayedStep& at, double amplitude) {
  for (size_t i = 0; i < at.logits->size(); ++i) {
    const uint64_t key = splitmix64((at.prompt << 40) ^ (at.step << 20) ^ i);
    (*at.logits)[i] += static_cast<float>(key & 1 ? amplitude : -amplitude);
  }
}

// The same at one step, on ids that T ranks low: nobody's top.
void noise_at_one_step(const ReplayedStep& at, double amplitude) {
  if (at.prompt != 0 || at.step != 3) return;
  const float top = *std::max_element(at.logits->begin(), at.logits->end());
  for (size_t i = 0; i < at.logits->size(); ++i) {
    const uint64_t key = splitmix64((at.step << 20) ^ i);
    if ((*at.logits)[i] < top - 12) {
      (*at.logits)[i] += static_cast<float>(key & 1 ? amplitude : -amplitude);
    }
  }
}

using Disturbance = std::function<void(const ReplayedStep&, double amplitude)>;

// A report whose value of `check` is `target` to one part in a thousand, by the amplitude.
ParityReport tuned(const Shared& recording, const Judge& judge, Check check, double target,
                   const Disturbance& disturb) {
  const auto at = [&](double amplitude) {
    const auto edit = [&](const ReplayedStep& step) {
      disturb(step, amplitude);
      *step.id = static_cast<int32_t>(std::max_element(step.logits->begin(), step.logits->end()) -
                                      step.logits->begin());
    };
    return judge_one(recording, {.edit = edit}, judge)[0];
  };
  const auto value = [check](const ParityReport& report) {
    const CheckResult* result = find_check(report, check);
    return result != nullptr && result->value ? *result->value : 0.0;
  };
  double low = 0, high = 16;
  ParityReport report = at(high);
  for (int i = 0; i < 40 && std::abs(value(report) / target - 1) > 1e-3; ++i) {
    const double middle = (low + high) / 2;
    report = at(middle);
    (value(report) < target ? low : high) = middle;
  }
  if (std::abs(value(report) / target - 1) > 1e-2) {
    throw Error(ErrorKind::kRuntime,
                fmt::format("selftest: no amplitude gives {} {:.4g}", check_name(check), target));
  }
  return report;
}

// Just above a limit, and just below it.
constexpr double kAbove = 1.03, kBelow = 0.97;

double limit_of(const Shared& recording, const Judge& judge, Check check) {
  const ParityReport report = judge_one(recording, {}, judge)[0];
  const CheckResult* result = find_check(report, check);
  if (result == nullptr || !result->limit) {
    throw Error(ErrorKind::kRuntime,
                fmt::format("selftest: {} has no limit in the report", check_name(check)));
  }
  return *result->limit;
}

template <Check kCheck, int kSide>
Reports at_limit(const Shared& recording, const GreedyReference& reference, const Judge& judge) {
  const double target = limit_of(recording, judge, kCheck) * (kSide > 0 ? kAbove : kBelow);
  const Place place = least_decided(reference);
  const ReferenceStep& step = reference.prompts[place.prompt].steps[place.step];
  Disturbance disturb = noise_everywhere;
  if constexpr (kCheck == Check::kStep) disturb = noise_at_one_step;
  // One of the top 32, lowered: no token changes.
  if constexpr (kCheck == Check::kInf) {
    disturb = [](const ReplayedStep& at, double amplitude) {
      if (at.prompt != 0 || at.step != 3) return;
      std::vector<float> sorted = *at.logits;
      std::nth_element(sorted.begin(), sorted.begin() + 8, sorted.end(), std::greater<>());
      const auto ninth = std::find(at.logits->begin(), at.logits->end(), sorted[8]);
      *ninth -= static_cast<float>(amplitude);
    };
  }
  // The top of the least decided step, raised: its token stays.
  if constexpr (kCheck == Check::kKl) {
    const int32_t top = step.top_ids[0];
    disturb = [place, top](const ReplayedStep& at, double amplitude) {
      if (place.is(at)) (*at.logits)[static_cast<size_t>(top)] += static_cast<float>(amplitude);
    };
  }
  return {tuned(recording, judge, kCheck, target, disturb)};
}

}  // namespace

const std::vector<GateFault>& gate_faults() {
  static const std::vector<GateFault> table = {
      {"sound", sound},
      {"random_token", random_token},
      {"highest_among_equals", highest_among_equals},
      {"second_best", second_best},
      {"nan_logit", nan_logit},
      {"nan_gives_zero", nan_gives_zero},
      {"stuck_counter", stuck_counter},
      {"stale_output", stale_output},
      {"short_output", short_output},
      {"bits_differ", bits_differ},
      {"other_without_logits", other_without_logits},
      {"r_rms_above", at_limit<Check::kRms, 1>},
      {"r_rms_below", at_limit<Check::kRms, -1>},
      {"r_step_above", at_limit<Check::kStep, 1>},
      {"r_step_below", at_limit<Check::kStep, -1>},
      {"r_inf_above", at_limit<Check::kInf, 1>},
      {"r_inf_below", at_limit<Check::kInf, -1>},
      {"r_kl_above", at_limit<Check::kKl, 1>},
      {"r_kl_below", at_limit<Check::kKl, -1>},
  };
  return table;
}

}  // namespace mkbench
