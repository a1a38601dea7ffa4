#include "harness/judge/parity.h"

namespace mkbench {

GreedyReference baseline_part(const GreedyReference& reference) {
  GreedyReference part = reference;
  part.prompts.clear();
  int strict = 0;
  for (const ReferencePrompt& prompt : reference.prompts) {
    if (prompt.set == "strict") {
      if (strict >= kBaselineSteps) continue;
      strict += static_cast<int>(prompt.steps.size());
    }
    part.prompts.push_back(prompt);
  }
  return part;
}

}  // namespace mkbench
