#include "harness/judge/check_reference.h"

#include <fmt/format.h>

#include <algorithm>

#include "references/synthetic.h"

namespace mkbench {

void check_reference_weights(const GreedyReference& reference, const ModelWeights& weights) {
  if (reference.weights_sha256.empty() || reference.weights_sha256 == weights.sha256) return;
  throw Error(
      ErrorKind::kInvalidReference,
      fmt::format("reference {}: weights_sha256: found {}, wanted {} of the loaded {}; weights of "
                  "your own need a folder of another name, or --reference DIR",
                  reference.path.string(), reference.weights_sha256, weights.sha256, weights.name));
}

void check_closed_form(const GreedyReference& reference, std::string_view lagset, int vocab) {
  for (const ReferencePrompt& prompt : reference.prompts) {
    // Only strict prompts have a closed form: the others are too short for it, or have ids without
    // a state (StateCode).
    if (prompt.set != "strict") continue;
    const auto fail = [&](const std::string& what) {
      throw Error(
          ErrorKind::kInvalidReference,
          fmt::format("reference {}: prompt '{}': {}", reference.path.string(), prompt.name, what));
    };
    if (static_cast<int>(prompt.ids.size()) <= synthetic_min_depth(lagset)) {
      fail(fmt::format("{} ids, wanted over {} for the closed form of '{}'", prompt.ids.size(),
                       synthetic_min_depth(lagset), lagset));
    }
    const std::vector<int32_t> expected =
        synthetic_continuation(prompt.ids, lagset, static_cast<int>(prompt.steps.size()), vocab);
    for (size_t t = 0; t < prompt.steps.size(); ++t) {
      if (prompt.steps[t].token == expected[t]) continue;
      fail(fmt::format("position {}: token {}, but the closed form of '{}' is {}",
                       prompt.steps[t].position, prompt.steps[t].token, lagset, expected[t]));
    }
  }
}

int check_live_closed_form(const GreedyReference& live, std::string_view lagset, int vocab) {
  const StateCode code(vocab);
  GreedyReference known = live;
  known.path = "live";
  std::erase_if(known.prompts, [&](const ReferencePrompt& prompt) {
    return static_cast<int>(prompt.ids.size()) <= synthetic_min_depth(lagset) ||
           std::any_of(prompt.ids.begin(), prompt.ids.end(),
                       [&](int32_t id) { return code.state(id) < 0; });
  });
  for (ReferencePrompt& prompt : known.prompts) prompt.set = "strict";
  check_closed_form(known, lagset, vocab);
  return static_cast<int>(known.prompts.size());
}

std::string live_check_text(const GreedyReference& live, std::string_view lagset, int vocab) {
  return fmt::format("{} of {} prompts have a closed form, and equal it",
                     check_live_closed_form(live, lagset, vocab), live.prompts.size());
}

}  // namespace mkbench
