// Repeats one step of a prompt, and tells what the truth and the engine say there.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "harness/judge/localise.h"
#include "harness/report/failed_step.h"

namespace mkbench {

struct ReplayOptions {
  int vocab = 0, layers = 0;
  double pairwise_d = 0;     // D of the reference
  bool logits_bf16 = false;  // the engine rounds its logits to bf16
  std::function<std::string(int32_t)> text_of{};
};

// Walks the prompt up to step `step` on all three engines, teacher-forced, and fills in everything
// but names, hashes and the command. Throws what the engines throw.
FailedStep replay_step(const LocaliseEngines& engines, const ReferencePrompt& prompt, int step,
                       const ReplayOptions& options);

// The verdict of a replayed step: FAIL_TOKEN for a wrong token; FAIL_FIDELITY where the logits are
// further from the truth than `limit` times the baseline's (0: not judged); else PASS.
Verdict verdict_of(const FailedStep& step, double limit);

// The prompt of a failed step, with the tokens that its walk forces.
ReferencePrompt prompt_of(const FailedStep& step);

}  // namespace mkbench
