// Looks for the known bug whose results are those of a failing engine.
#pragma once

#include <functional>
#include <vector>

#include "harness/judge/budget.h"
#include "harness/judge/replay.h"
#include "harness/report/diagnosis.h"
#include "harness/report/parity_report.h"
#include "references/bug_fit.h"
#include "references/engine.h"
#include "references/greedy_reference.h"

namespace mkbench {

// The time that a diagnosis may take, in seconds.
inline constexpr double kDiagnosisSeconds = 20;
// A step with more rows before it is not diagnosed.
inline constexpr int kMostDiagnosedRows = 1024;

// Steps [first, first + count) of a prompt, which the engine repeats for a diagnosis.
struct ReplayWindow {
  const ReferencePrompt* prompt;
  int first, count;
};

// Steps around step `step` of the failing prompt, and around the first wrong step of the shortest
// other prompts that fail; where few fail, the first steps of the shortest of the others. `logits`:
// the engine shows them; without them more windows are needed.
std::vector<ReplayWindow> replay_windows(const GreedyReference& reference,
                                         const std::vector<ParityRow>& rows,
                                         const ReferencePrompt& failing, int step, bool logits);

// Repeats the windows, teacher-forced, on the candidate or, if `next` is set, each on the engine
// that it opens, and asks the truth which bug fits. `tau`: as in BugQuestion. An error of an engine
// becomes the text: the failure is proven without it.
Diagnosis diagnose(Engine& candidate, Engine& truth, const std::vector<ReplayWindow>& windows,
                   int vocab, double tau, const Now& now,
                   const std::function<Engine&()>& next = {});

// All that is known of a step that these engines have repeated: `step` and `last` come from
// replay_step() or repeat_step(). The diagnosis is of this step and those before it.
FailureDetails details_of(const LocaliseEngines& engines, FailedStep step, const LastStep& last,
                          const ReplayOptions& options, const Now& now);
// Details of a step that could not be repeated, because of `error`.
FailureDetails not_repeated(FailedStep step, const Error& error);

// Says what the fits mean. `rms_limit`: of R_rms, for the engine's precision class. A bug is named
// alone only if rounding explains what it leaves of the error, and no other bug does nearly as well.
Diagnosis conclude_diagnosis(const BugFits& fits, double rms_limit);

}  // namespace mkbench
