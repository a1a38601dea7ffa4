#include "harness/judge/facts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "references/base/median.h"

namespace mkbench {
namespace {

// Fewest steps behind a statement about steps: 8 ids out of 64 agree by chance with p = 64^-8.
constexpr size_t kFewSteps = 8;
// Fewest steps that call a cache length right by ids alone, which chance may give; with logits one
// is enough. Also the fewest prefills, and failing steps from a length on.
constexpr size_t kFewIds = 3;
// "Wrong from N rows on" allows for this share of right steps: some tokens any model predicts.
constexpr double kMostSteps = 0.9;
// Median logit error in the last quarter of the cache lengths over that in the first. That of the
// bf16 baseline of the eight committed references with logits is 0.81 to 1.10.
constexpr double kGrows = 2, kFlat = 1.25;
// Logarithms of the largest chance at which ids form a pattern: one test, and one of many spans.
const double kRare = std::log(1e-3), kVeryRare = std::log(1e-6);
// A factor is printed if it explains 99 % of the squared error.
constexpr double kLeftByScaling = 0.01;
// A logit is off over kNear times the baseline's largest error, as an engine of the baseline's class
// stays near 1 at every id. A pattern is printed if the median of what is off is over kFar times.
constexpr double kFar = 4, kNear = 2;
constexpr size_t kListedIds = 7;

struct Seen : SeenStep {
  int rows = 0;      // KV rows that the step sees, its own included
  bool far = false;  // its logits' error is over the limit
  bool off = false;  // it fails
  double error = 0;  // |error| over |the truth's centred logits|; negative: not known

  const ReferenceStep& truth() const { return prompt->steps[static_cast<size_t>(step)]; }
  int32_t input() const {
    return step > 0 ? prompt->steps[static_cast<size_t>(step) - 1].token : prompt->ids.back();
  }
  bool not_own() const {
    return forced.argmax >= 0 && forced.id >= 0 && forced.id != forced.argmax;
  }
};
using Steps = std::vector<Seen>;

// All steps, in the order of their cache lengths.
Steps examine(const std::vector<SeenStep>& steps, double limit) {
  std::vector<double> norms;
  Steps seen;
  for (const SeenStep& s : steps) {
    seen.push_back({s});
    norms.push_back(seen.back().truth().baseline_error_norm);
  }
  const double middle = median(norms);
  for (Seen& s : seen) {
    const double norm = s.forced.error ? std::sqrt(s.forced.error->squared) : 0;
    s.far = limit > 0 && norm > limit * std::max(middle, s.truth().baseline_error_norm);
    s.rows = static_cast<int>(s.prompt->ids.size()) + s.step;
    s.off = s.wrong || s.forced.non_finite > 0 || s.far;
    s.error = s.forced.error && s.truth().centred_norm > 0 ? norm / s.truth().centred_norm : -1;
  }
  std::stable_sort(seen.begin(), seen.end(),
                   [](const Seen& a, const Seen& b) { return a.rows < b.rows; });
  return seen;
}

struct Count {
  size_t all = 0, off = 0;
};
template <typename Takes>
Count count(const Steps& seen, const Takes& takes) {
  Count c;
  for (const Seen& s : seen) {
    c.all += takes(s);
    c.off += takes(s) && s.off;
  }
  return c;
}

bool most(size_t part, size_t all) {
  return static_cast<double>(part) >= kMostSteps * static_cast<double>(all);
}

// In the order of judging: the first one may have spoilt the KV rows of the others.
std::string first_not_finite(const std::vector<SeenStep>& steps) {
  const auto first = std::find_if(steps.begin(), steps.end(),
                                  [](const SeenStep& s) { return s.forced.non_finite > 0; });
  if (first == steps.end()) return "";
  return fmt::format(
      "the first NaN or Inf: prompt '{}' position {}, logit {} ({} at this step; a logit that is "
      "never written reads as NaN)",
      first->prompt->name, first->prompt->steps[static_cast<size_t>(first->step)].position,
      first->forced.first_non_finite, first->forced.non_finite);
}

std::string missing_or_repeated(const Steps& seen) {
  std::set<int32_t> ids, wanted;
  for (const Seen& s : seen) {
    ids.insert(s.forced.id);
    wanted.insert(s.truth().token);
  }
  const size_t missing = count(seen, [](const Seen& s) { return s.forced.id == -1; }).all;
  if (missing > 0) {
    return fmt::format(
        "id -1 at {} of {} steps: no id was written; did decode() return before its work was done?",
        missing, seen.size());
  }
  if (seen.size() < kFewSteps || ids.size() > 1 || wanted.size() < 2) return "";
  return fmt::format("the id is {} at each of {} steps", *ids.begin(), seen.size());
}

std::string late(const Steps& seen) {
  size_t late = 0, all = 0;
  for (const Seen& s : seen) {
    if (s.truth().token == s.input()) continue;
    ++all;
    late += s.forced.id == s.input();
  }
  if (late < kFewSteps || !most(late, all)) return "";
  return fmt::format(
      "at {} of {} steps whose right id is another the id is the step's input, which is the right "
      "id of the step before: do ids come out one step late?",
      late, all);
}

// Where ids are not the argmax of the engine's own logits: whether they are of the same logit. Else
// whether the ids that should have been emitted there, or at wrong steps, are a block.
std::string by_argmax(const Steps& seen) {
  const size_t other = count(seen, [](const Seen& s) { return s.not_own(); }).all;
  std::set<int32_t> lost, won;
  size_t equal = 0;
  for (const Seen& s : seen) {
    if (s.forced.id >= 0) won.insert(s.forced.id);
    equal += s.not_own() && s.forced.is_largest;
    if (other > 0 ? s.not_own() : s.wrong)
      lost.insert(other > 0 ? s.forced.argmax : s.truth().token);
  }
  if (equal > 0)
    return fmt::format(
        "at {} of {} steps whose id is not the argmax of the engine's own logits, its logit is as "
        "large: of equal logits the lowest id is wanted",
        equal, other);
  if (lost.empty() || won.empty()) return "";
  const auto n = static_cast<double>(lost.size()), others = static_cast<double>(won.size());
  // The chance that the n largest of n + others ids in random order are just these n.
  const double apart = std::lgamma(n + 1) + std::lgamma(others + 1) - std::lgamma(n + others + 1);
  if (*lost.begin() <= *won.rbegin() || apart > kRare) return "";
  return fmt::format("no emitted id is {} or more, and {} always is", *lost.begin(),
                     other > 0
                         ? "where the id is not the argmax of the engine's own logits, that argmax"
                         : "the right id of a wrong step");
}

// Logarithm of the chance that `off` of n steps, drawn at random, are all among the last `later`.
double log_chance_of_last(size_t off, size_t later, size_t n) {
  const auto ways = [off](size_t of) {
    return std::lgamma(static_cast<double>(of) + 1) -
           std::lgamma(static_cast<double>(of - off) + 1);
  };
  return ways(later) - ways(n);
}

std::string by_rows(const Steps& seen) {
  const auto first = std::find_if(seen.begin(), seen.end(), [](const Seen& s) { return s.off; });
  if (first == seen.end()) return "";
  const int rows = first->rows;
  const Count fewer = count(seen, [=](const Seen& s) { return s.rows < rows; });
  const Count from = count(seen, [=](const Seen& s) { return s.rows >= rows; });
  if (rows == 1)
    return "wrong already where a step sees 1 KV row, its own: RoPE and older rows have no "
           "influence "
           "there, unless rows behind the newest are read (mask, a padded tile)";
  if (fewer.all == 0) return "";
  const int right = seen[fewer.all - 1].rows;
  const std::string begin =
      fmt::format("right with {}{} KV row{} ({} of {} steps), wrong ", right == 1 ? "" : "up to ",
                  right, right == 1 ? "" : "s", fewer.all, seen.size());
  const bool sharp = most(from.off, from.all) && from.off >= kFewIds &&
                     (seen.front().error >= 0 || fewer.all >= kFewIds);
  if (!sharp && log_chance_of_last(from.off, from.all, seen.size()) > kRare) return "";
  if (!sharp) return begin + fmt::format("at {} of {} from {} on", from.off, from.all, rows);
  return begin + fmt::format("from {} on ({} of {}): look at what {}", rows, from.off, from.all,
                             rows == 2 ? "depends on position or on older rows"
                                       : fmt::format("changes at {} rows", rows));
}

// Whether the failure keeps to the first step behind a prefill, or to the others.
std::string by_prefill(const Steps& seen) {
  const Count first =
      count(seen, [](const Seen& s) { return s.step == 0 && s.prompt->ids.size() > 1; });
  const Count later = count(seen, [](const Seen& s) { return s.step > 0; });
  const size_t right = later.all - later.off;
  const bool in_decode = first.off == 0 && later.off >= right;
  const bool in_prefill = first.off == first.all && most(right, later.all);
  if (first.all < kFewIds || later.all < kFewSteps || in_decode == in_prefill) return "";
  return fmt::format(
      "{} at the first step behind each of {} prefills, right at {} of {} later steps: look at {}",
      in_decode ? "right" : "wrong", first.all, right, later.all,
      in_decode ? "what decode() hands on to the next step (KV row, position)"
                : "the end of prefill()");
}

std::string by_depth(const Steps& seen) {
  const size_t quarter = seen.size() / 4;
  const bool known =
      std::all_of(seen.begin(), seen.end(), [](const Seen& s) { return s.error >= 0; });
  // With most errors within the limit, both medians would be theirs.
  const size_t far_ones = count(seen, [](const Seen& s) { return s.far; }).all;
  if (quarter < kFewSteps || !known || 2 * far_ones < seen.size()) return "";
  std::vector<double> near, far;
  for (size_t i = 0; i < quarter; ++i) {
    near.push_back(seen[i].error);
    far.push_back(seen[seen.size() - 1 - i].error);
  }
  const double low = median(near), high = median(far);
  const bool flat = std::max(low, high) <= kFlat * std::min(low, high);
  if (!flat && high < kGrows * low) return "";
  return fmt::format(
      "logit errors {} with position: median {:.2g} of the logits' norm with up to {} KV rows, "
      "{:.2g} from {} on",
      flat ? "do not grow" : "grow", low, seen[quarter - 1].rows, high,
      seen[seen.size() - quarter].rows);
}

// "ids 256 to 511", "ids 3, 9"; empty if they form no pattern.
std::string pattern_of(const std::set<int32_t>& ids, int vocab) {
  const auto n = static_cast<double>(ids.size());
  if (ids.size() <= kListedIds)
    return fmt::format("id{} {}", ids.size() == 1 ? "" : "s", fmt::join(ids, ", "));
  const int span = *ids.rbegin() - *ids.begin() + 1;
  // The chance that no id outside the span is off, if ids there were off as often as inside it.
  const double outside = (vocab - span) * std::log(std::max(1 - n / span, 1e-3));
  if (2 * n >= span && outside <= kVeryRare)
    return fmt::format("ids {} to {}", *ids.begin(), *ids.rbegin());
  return "";
}

// Errors of logits against the truth's, less their median.
std::vector<double> errors_of(const std::vector<float>& logits, const std::vector<float>& truth) {
  std::vector<double> errors(truth.size());
  for (size_t i = 0; i < truth.size(); ++i) errors[i] = double{logits[i]} - double{truth[i]};
  const double shift = median(errors);
  for (double& e : errors) e -= shift;
  return errors;
}

std::string by_scale(const std::vector<float>& found, const std::vector<float>& truth) {
  const int vocab = static_cast<int>(truth.size());
  const double found_mean = mean_of(found.data(), vocab), mean = mean_of(truth.data(), vocab);
  double xx = 0, xt = 0, tt = 0;
  for (size_t i = 0; i < truth.size(); ++i) {
    const double x = found[i] - found_mean, t = truth[i] - mean;
    xx += x * x;
    xt += x * t;
    tt += t * t;
  }
  if (xx == 0) return fmt::format("all logits of this step are {:g}", found.front());
  const double left = xx - xt * xt / tt, error = xx - 2 * xt + tt;
  if (!(left < kLeftByScaling * error)) return "";
  return fmt::format(
      "the engine's logits (less their mean) are {:.3g} times the truth's; this factor explains "
      "{:.1f} % of their squared error",
      xt / tt, 100 * (1 - left / error));
}

std::string by_ids(const LastStep& step) {
  double band = 0;
  for (const double e : errors_of(step.baseline, step.truth)) band = std::max(band, std::abs(e));
  const std::vector<double> errors = errors_of(step.candidate, step.truth);
  std::set<int32_t> off;
  std::set<float> values;
  std::vector<double> sizes;
  for (size_t i = 0; i < errors.size(); ++i) {
    if (std::abs(errors[i]) <= kNear * band) continue;
    off.insert(static_cast<int32_t>(i));
    values.insert(step.candidate[i]);
    sizes.push_back(std::abs(errors[i]));
  }
  // errors_of() takes out the shift of the others only if most ids are others.
  if (2 * off.size() >= errors.size() || median(sizes) <= kFar * band) return "";
  const std::string ids = pattern_of(off, static_cast<int>(errors.size()));
  if (ids.empty()) return "";
  const bool one_value = values.size() == 1 && off.size() > 1;
  return fmt::format("at this step the logits of {} alone are off (of {} ids){}", ids,
                     errors.size(),
                     one_value ? fmt::format(": all are {:g}", *values.begin()) : "");
}

void add(std::vector<std::string>& facts, std::string fact) {
  if (!fact.empty()) facts.push_back(std::move(fact));
}

}  // namespace

void scan_logits(const float* logits, int vocab, ForcedStep& step) {
  float largest = -std::numeric_limits<float>::infinity();
  for (int i = 0; i < vocab; ++i) {
    if (!std::isfinite(logits[i])) {
      if (step.non_finite++ == 0) step.first_non_finite = i;
    } else if (step.argmax < 0 || logits[i] > largest) {
      largest = logits[i];
      step.argmax = i;
    }
  }
  step.is_largest = step.id >= 0 && step.id < vocab && logits[step.id] == largest;
}

std::vector<std::string> facts_of_steps(const std::vector<SeenStep>& steps, double error_limit,
                                        bool takes_forced) {
  const Steps seen = examine(steps, error_limit);
  std::vector<std::string> facts;
  add(facts, first_not_finite(steps));
  for (const auto& fact : {missing_or_repeated, late, by_argmax, by_rows}) add(facts, fact(seen));
  if (takes_forced) add(facts, by_prefill(seen));
  add(facts, by_depth(seen));
  return facts;
}

std::vector<std::string> facts_of_logits(const LastStep& step) {
  const size_t n = step.truth.size();
  const auto finite = [](float z) { return std::isfinite(z); };
  std::vector<std::string> facts;
  if (n == 0 || step.candidate.size() != n ||
      !std::all_of(step.candidate.begin(), step.candidate.end(), finite))
    return facts;
  add(facts, by_scale(step.candidate, step.truth));
  if (facts.empty() && step.baseline.size() == n) add(facts, by_ids(step));
  return facts;
}

}  // namespace mkbench
