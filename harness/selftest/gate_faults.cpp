#include "harness/selftest/gate_faults.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "references/base/error.h"
#include "references/oracle.h"
#include "references/synthetic.h"

namespace mkbench {
namespace {

using Shared = std::shared_ptr<const Recording>;
using Reports = std::vector<ParityReport>;

using Run = decltype(GateFault::run);
using Edit = std::function<void(const ReplayedStep&)>;

Reports judge_one(const Shared& recording, const GreedyReference& reference, ReplayOptions options,
                  const Judge& judge) {
  const auto engine = make_replay(recording, std::move(options));
  return {judge(*engine, reference)};
}

Run replayed(const ReplayOptions& options) {
  return [options](const Shared& recording, const GreedyReference& reference, const Judge& judge) {
    return judge_one(recording, reference, options, judge);
  };
}

// A step of the reference, by default the first step of the first prompt.
struct Place {
  size_t prompt = 0, step = 0;
  bool is(const ReplayedStep& at) const { return at.prompt == prompt && at.step == step; }
};

// The step with the smallest margin in the whole reference.
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

Run at_first_step(const Edit& edit) {
  return replayed({.edit = [edit](const ReplayedStep& at) {
    if (Place().is(at)) edit(at);
  }});
}

// Edits the least decided step; `edit` also gets the ids of the truth's two largest logits.
Run at_least_decided(
    const std::function<void(const ReplayedStep&, int32_t first, int32_t second)>& edit) {
  return [edit](const Shared& recording, const GreedyReference& reference, const Judge& judge) {
    const Place place = least_decided(reference);
    const auto& top = reference.prompts[place.prompt].steps[place.step].top_ids;
    const auto at_place = [&](const ReplayedStep& at) {
      if (place.is(at)) edit(at, top[0], top[1]);
    };
    return judge_one(recording, reference, {.edit = at_place}, judge);
  };
}

// Another id at a single step, for every step of a strict prompt in turn; the logits stay right.
Reports random_token(const Shared& recording, const GreedyReference& reference,
                     const Judge& judge) {
  constexpr size_t kPrompt = 1;  // strict in the reference of `tiny`
  Reports reports;
  for (size_t step = 0; step < reference.prompts[kPrompt].steps.size(); ++step) {
    const auto edit = [&](const ReplayedStep& at) {
      if (at.prompt != kPrompt || at.step != step) return;
      const auto vocab = static_cast<uint64_t>(recording->vocab);
      const uint64_t other = 1 + splitmix64(step) % (vocab - 1);
      *at.id = static_cast<int32_t>((static_cast<uint64_t>(*at.id) + other) % vocab);
    };
    reports.push_back(judge_one(recording, reference, {.edit = edit}, judge)[0]);
  }
  return reports;
}

void highest_among_equals(const ReplayedStep& at, int32_t first, int32_t second) {
  (*at.logits)[static_cast<size_t>(second)] = (*at.logits)[static_cast<size_t>(first)];
  *at.id = std::max(first, second);
}

// The last bit of one logit alternates from call to call.
void bits_differ(const ReplayedStep& at) {
  float& logit = at.logits->front();
  if (at.decode % 2 == 0) logit = std::nextafter(logit, 2 * std::abs(logit) + 1);
}

// `reference` with equal errors of the baseline at every step, so that one ratio alone can exceed
// its limit. The errors are large against the error of one logit and small against a margin.
GreedyReference even(GreedyReference reference, double kl) {
  for (ReferencePrompt& prompt : reference.prompts) {
    for (ReferenceStep& step : prompt.steps) {
      step.baseline_error_norm = 4;
      step.baseline_error_inf_top = 0.25;
      step.baseline_kl = kl;
    }
  }
  return reference;
}

float signed_noise(const ReplayedStep& at, size_t id, double amplitude) {
  const uint64_t key = splitmix64((at.prompt << 40) ^ (at.step << 20) ^ id);
  return static_cast<float>(key & 1 ? amplitude : -amplitude);
}

using Disturbance = std::function<void(const ReplayedStep&, double amplitude)>;

// The disturbance that moves the ratio of `check` and no other. r_rms: an error on every id outside
// the truth's top 32, at every step; r_step: the same at one step; r_inf: an error on one id of the
// top 32; r_kl: a larger top logit at the least decided step, whose token stays.
Disturbance disturbance_of(Check check, const GreedyReference& reference) {
  const auto is_top = [&reference](const ReplayedStep& at, size_t id) {
    const auto& top = reference.prompts[at.prompt].steps[at.step].top_ids;
    return std::find(top.begin(), top.end(), static_cast<int32_t>(id)) != top.end();
  };
  const Place place = least_decided(reference);
  switch (check) {
    case Check::kInf:
      return [&reference](const ReplayedStep& at, double amplitude) {
        if (at.prompt != 0 || at.step != 3) return;
        const int32_t ninth = reference.prompts[0].steps[3].top_ids[8];
        (*at.logits)[static_cast<size_t>(ninth)] -= static_cast<float>(amplitude);
      };
    case Check::kKl:
      return [&reference, place](const ReplayedStep& at, double amplitude) {
        if (!place.is(at)) return;
        const int32_t top = reference.prompts[at.prompt].steps[at.step].top_ids[0];
        (*at.logits)[static_cast<size_t>(top)] += static_cast<float>(amplitude);
      };
    default:
      return [is_top, check](const ReplayedStep& at, double amplitude) {
        if (check == Check::kStep && (at.prompt != 0 || at.step != 3)) return;
        for (size_t id = 0; id < at.logits->size(); ++id) {
          if (!is_top(at, id)) (*at.logits)[id] += signed_noise(at, id, amplitude);
        }
      };
  }
}

double value_of(const ParityReport& report, Check check) {
  const CheckResult* result = find_check(report, check);
  return result != nullptr && result->value ? *result->value : 0.0;
}

double limit_of(const ParityReport& report, Check check) {
  const CheckResult* result = find_check(report, check);
  if (result == nullptr || !result->limit) {
    throw Error(ErrorKind::kRuntime,
                fmt::format("selftest: {} has no limit in the report", check_name(check)));
  }
  return *result->limit;
}

// Brings a ratio to kDistance above its limit (kSide = 1) or below it (kSide = -1), to within
// kClose; finds the amplitude of the disturbance by bisection.
template <Check kCheck, int kSide>
Reports at_limit(const Shared& recording, const GreedyReference& reference, const Judge& judge) {
  constexpr double kDistance = 0.03, kClose = 0.01;
  // The baseline's divergence: small, so that r_kl reaches its limit, or large, so that it does
  // not.
  const GreedyReference evened = even(reference, kCheck == Check::kKl ? 1e-5 : 1e-2);
  const Disturbance disturb = disturbance_of(kCheck, evened);
  const auto at = [&](double amplitude) {
    const auto edit = [&](const ReplayedStep& step) {
      disturb(step, amplitude);
      *step.id = argmax_lowest(*step.logits);
    };
    return judge_one(recording, evened, {.edit = edit}, judge)[0];
  };
  const double target = limit_of(at(0), kCheck) * (1 + kSide * kDistance);
  double low = 0, high = 8;
  for (int i = 0; i < 40; ++i) {
    const double middle = (low + high) / 2;
    const ParityReport report = at(middle);
    const double value = value_of(report, kCheck);
    if (std::abs(value / target - 1) <= kClose) return {report};
    (value < target ? low : high) = middle;
  }
  throw Error(ErrorKind::kRuntime,
              fmt::format("selftest: no amplitude gives {} {:.4g}", check_name(kCheck), target));
}

}  // namespace

const std::vector<GateFault>& gate_faults() {
  static const std::vector<GateFault> table = {
      {"sound", replayed({})},
      {"random_token", random_token},
      {"highest_among_equals", at_least_decided(highest_among_equals)},
      // An id whose logit is not the largest.
      {"second_best", at_least_decided([](auto& at, auto, int32_t second) { *at.id = second; })},
      {"nan_logit", at_first_step([](auto& at) { at.logits->back() = std::nanf(""); })},
      // An argmax over NaN alone returns 0.
      {"nan_gives_zero", at_first_step([](auto& at) {
         std::fill(at.logits->begin(), at.logits->end(), std::nanf(""));
         *at.id = 0;
       })},
      {"stuck_counter", replayed({.stuck_counter = true})},
      {"stale_output", replayed({.stale_output = true})},
      {"short_output", replayed({.missing_ids = 1})},
      {"bits_differ", replayed({.edit = bits_differ})},
      {"other_without_logits", at_least_decided([](auto& at, auto, int32_t second) {
         if (!at.with_logits) *at.id = second;
       })},
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
