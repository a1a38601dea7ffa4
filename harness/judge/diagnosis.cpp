#include "harness/judge/diagnosis.h"

#include <fmt/format.h>

#include <algorithm>

#include "harness/judge/facts.h"
#include "harness/judge/findings.h"
#include "harness/judge/ratios.h"

namespace mkbench {
namespace {

// Steps of a window before and behind the failing one, and the number of windows, which tell less
// where the engine shows no logits.
constexpr int kStepsBefore = 7, kStepsBehind = 9;
constexpr size_t kWindows = 4, kWindowsOfIds = 8;

// A bug fits if it leaves at most kMostLeft, and little more than rounding explains: the limit of
// R_rms times kTimesLimit, and at most kMostRounding, times what bf16 arithmetic with the bug leaves.
constexpr double kTimesLimit = 4.0 / 3, kMostRounding = 8;
// Bugs whose errors differ by less are not told apart.
constexpr double kAlike = 1.25;
constexpr size_t kListed = 3;

int rows_of(const ReferencePrompt& prompt, int end) {
  return static_cast<int>(prompt.ids.size()) + end - 1;
}

ObservedRun observe(Engine& engine, const ReplayWindow& window, int vocab) {
  const ReferencePrompt& prompt = *window.prompt;
  const int end = window.first + window.count;
  ObservedRun run{.ids = prompt.ids, .prompt = static_cast<int>(prompt.ids.size())};
  for (int t = 0; t + 1 < end; ++t) run.ids.push_back(prompt.steps[static_cast<size_t>(t)].token);
  Findings ignored;  // the judge has reported these failures already
  forced_run(engine, prompt, window.first, end, vocab, ignored,
             [&](int first, const std::vector<int32_t>& ids, const std::vector<float>& logits) {
               if (first < window.first) return;
               run.found = ids;
               run.logits = logits;
             });
  return run;
}

std::string percent(double share) {
  if (share < 1e-4) return "below 0.01 %";
  // Two digits would make 99.5 "1e+02".
  return share < 0.995 ? fmt::format("{:.2g} %", 100 * share)
                       : fmt::format("{:.0f} %", 100 * share);
}

// "a; b; c and 4 more"
std::string list_of(const std::vector<BugFit>& fits) {
  std::string text;
  for (size_t i = 0; i < std::min(fits.size(), kListed); ++i)
    text += (i > 0 ? "; " : "") + fits[i].text;
  if (fits.size() > kListed) text += fmt::format("; and {} more", fits.size() - kListed);
  return text;
}

std::string by_logits(const BugFits& fits, double times_rounding, std::vector<BugFit>& fitting) {
  if (1 <= times_rounding * fits.truth.rounding) {
    return "where the steps were repeated the logits are the truth's but for rounding: what is "
           "wrong lies behind them (the choice of the id, where ids are written) or did not happen "
           "again";
  }
  const BugFit& best = fits.best.front();
  if (best.error > kMostLeft) return "no known bug fits";
  if (best.error > times_rounding * best.rounding) {
    return fmt::format("no known bug fits; the nearest leaves {} of the error: {}",
                       percent(best.error), best.text);
  }
  for (const BugFit& fit : fits.best) {
    if (fit.error <= kAlike * best.error) fitting.push_back(fit);
  }
  std::string text =
      (fitting.size() == 1 ? "the logits are those of: " : "the logits fit several bugs alike: ") +
      list_of(fitting);
  text += fmt::format(" (error {} of what it was", percent(best.error));
  if (fitting.size() < fits.best.size())
    text += fmt::format(", of the next bug {}", percent(fits.best[fitting.size()].error));
  return text + ")";
}

std::string by_ids(const BugFits& fits, std::vector<BugFit>& fitting) {
  std::copy_if(fits.best.begin(), fits.best.end(), std::back_inserter(fitting),
               [](const BugFit& fit) { return fit.wrong == 0; });
  if (fitting.empty()) {
    const BugFit& best = fits.best.front();
    if (2 * best.wrong > fits.truth.wrong) return "no known bug gives these ids";
    return fmt::format("no known bug gives all of these ids; the nearest leaves {} of {} wrong: {}",
                       best.wrong, fits.truth.wrong, best.text);
  }
  if (fitting.size() == 1) return "the ids are those of: " + fitting.front().text;
  return "the ids fit several bugs, the likeliest first: " + list_of(fitting);
}

}  // namespace

std::vector<ReplayWindow> replay_windows(const GreedyReference& reference,
                                         const std::vector<ParityRow>& rows,
                                         const ReferencePrompt& failing, int step, bool logits) {
  const auto window = [](const ReferencePrompt& prompt, int around) {
    const int first = std::max(0, around - kStepsBefore);
    const int end = std::min(static_cast<int>(prompt.steps.size()), around + kStepsBehind);
    return ReplayWindow{&prompt, first, end - first};
  };
  std::vector<ReplayWindow> all = {window(failing, step)};
  // With the order in which they are taken: failing prompts first, then by length.
  std::vector<std::pair<std::pair<bool, size_t>, ReplayWindow>> others;
  for (const ReferencePrompt& prompt : reference.prompts) {
    if (&prompt == &failing || prompt.steps.empty()) continue;
    const auto wrong = std::find_if(rows.begin(), rows.end(), [&](const ParityRow& row) {
      return row.prompt == prompt.name && row.verdict == StepVerdict::kWrong;
    });
    const bool is_right = wrong == rows.end();
    const int at = is_right ? 0 : wrong->position - prompt.steps.front().position;
    others.push_back({{is_right, prompt.ids.size()}, window(prompt, at)});
  }
  std::stable_sort(others.begin(), others.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  for (const auto& [key, of] : others) {
    if (all.size() < (logits ? kWindows : kWindowsOfIds) &&
        rows_of(*of.prompt, of.first + of.count) <= kMostDiagnosedRows)
      all.push_back(of);
  }
  return all;
}

Diagnosis conclude_diagnosis(const BugFits& fits, double rms_limit) {
  Diagnosis diagnosis{.tried = fits.tried, .known = fits.known};
  std::vector<BugFit> fitting;
  const bool with_logits = fits.truth.error >= 0;
  if (!with_logits && fits.truth.wrong < kEnoughIds) {
    diagnosis.text = fmt::format(
        "not told by {} wrong id{} without logits: show them, or judge more "
        "ids (mkbench parity --keep-going)",
        fits.truth.wrong, fits.truth.wrong == 1 ? "" : "s");
    return diagnosis;
  }
  if (fits.best.empty()) {
    diagnosis.text = "not diagnosed: no bug was tried in the time";
    return diagnosis;
  }
  const double times_rounding = std::min(kTimesLimit * rms_limit, kMostRounding);
  diagnosis.text = with_logits ? by_logits(fits, times_rounding, fitting) : by_ids(fits, fitting);
  for (const BugFit& fit : fitting) diagnosis.names.push_back(fit.name);
  if (with_logits) {
    diagnosis.error = fits.best.front().error;
    if (fits.best.size() > 1) diagnosis.next_error = fits.best[1].error;
  }
  if (fits.timed_out) {
    diagnosis.text += fmt::format("; {} of {} known bugs were not tried in {:g} s",
                                  fits.known - fits.tried, fits.known, kDiagnosisSeconds);
  }
  return diagnosis;
}

Diagnosis diagnose(Engine& candidate, Engine& truth, const std::vector<ReplayWindow>& windows,
                   int vocab, double tau, const Now& now, const std::function<Engine&()>& next) {
  const double end = now() + kDiagnosisSeconds;
  const ReplayWindow& failing = windows.front();
  const int rows = rows_of(*failing.prompt, failing.first + failing.count);
  if (rows > kMostDiagnosedRows) {
    return {.text = fmt::format("not diagnosed: {} rows are too many, at most {} are tried", rows,
                                kMostDiagnosedRows)};
  }
  BugQuestion question{.tau = tau};
  try {
    for (const ReplayWindow& window : windows) {
      // A slow engine repeats fewer prompts: most of the time is for the bugs.
      if (!question.runs.empty() && now() > end - 0.75 * kDiagnosisSeconds) break;
      question.runs.push_back(observe(next ? next() : candidate, window, vocab));
    }
    question.seconds = std::max(0.0, end - now());
    const std::optional<BugFits> fits = truth.explain(question);
    if (!fits) return {.text = "not diagnosed: this truth tries no bugs"};
    return conclude_diagnosis(*fits, limits_of(candidate.capabilities().precision).rms);
  } catch (const Error& error) {
    return {.text = fmt::format("not diagnosed: {}", error.what())};
  }
}

FailureDetails details_of(const LocaliseEngines& engines, FailedStep step, const LastStep& last,
                          const ReplayOptions& options, const Now& now) {
  FailureDetails details{.error_by_position = last.by_position,
                         .localised = step.localised,
                         .facts = facts_of_logits(last)};
  ReferencePrompt prompt = prompt_of(step);
  if (step.late_id) prompt.ids.back() = *step.late_id;
  const int steps = static_cast<int>(prompt.steps.size());
  const int first = std::max(0, steps - 1 - kStepsBefore);
  details.diagnosis =
      diagnose(engines.candidate, engines.truth, {{&prompt, first, steps - first}}, options.vocab,
               tau_of(last.truth, step.pairwise_d, options.logits_bf16), now);
  details.failed_step = std::move(step);
  return details;
}

FailureDetails not_repeated(FailedStep step, const Error& error) {
  FailureDetails details{.localised = fmt::format("not localised: {}", error.what())};
  step.localised = details.localised;
  details.failed_step = std::move(step);
  return details;
}

}  // namespace mkbench
