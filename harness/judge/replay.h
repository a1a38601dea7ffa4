// Repeats one step of a prompt, and reports what truth and engine give there.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "harness/judge/localise.h"
#include "harness/report/failed_step.h"
#include "harness/report/verdict.h"

namespace mkbench {

struct ReplayOptions {
  int vocab = 0, layers = 0;
  double pairwise_d = 0;     // D of the reference
  bool logits_bf16 = false;  // the engine rounds its logits to bf16
  std::function<std::string(int32_t)> text_of{};
  // As in FailedStep: how the engine reaches the step's id, and the allowed error of its logits.
  int free_tokens = 0;
  std::optional<int32_t> late_id{};
  std::optional<double> error_limit{};
};

// Records a step as it was judged, without hashes, names of engine and model, the command, and
// what only another run shows. `logits`: the engine's [vocab]; empty if it shows none.
FailedStep observed_step(const ReferencePrompt& prompt, int step, int32_t found,
                         const std::vector<float>& logits, const ReplayOptions& options);

// Walks the prompt up to step `step` on all three engines, teacher-forced, and fills in everything
// but names, hashes and the command. The id comes from the walk or, with free_tokens, from a run
// without logits. `last`, if given, receives what the engines gave. Throws what the engines throw.
FailedStep replay_step(const LocaliseEngines& engines, const ReferencePrompt& prompt, int step,
                       const ReplayOptions& options, LastStep* last = nullptr);

// Repeats a judged step in the way that it records, and adds the results of truth, baseline and
// another run of the candidate. The recorded id stays; if the new run gives another id, `localised`
// says so.
FailedStep repeat_step(const LocaliseEngines& engines, const FailedStep& observed,
                       ReplayOptions options, LastStep* last = nullptr);

// The verdict of a replayed step. FAIL_SELF: the id is not the argmax of the logits that came with
// it. FAIL_TOKEN: a wrong token. NONDETERMINISTIC: runs with and without logits give different ids.
// FAIL_FIDELITY: the error of the logits exceeds the step's error_limit or, without one, `limit`
// times the baseline's error (0: not judged). Else PASS.
Verdict verdict_of(const FailedStep& step, double limit);

// The prompt of a failed step, with the tokens that its walk forces.
ReferencePrompt prompt_of(const FailedStep& step);

}  // namespace mkbench
