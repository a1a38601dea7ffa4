#include <fmt/format.h>

#include "harness/judge/parity.h"
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

void check_closed_form(const GreedyReference& reference, std::string_view lagset) {
  for (const ReferencePrompt& prompt : reference.prompts) {
    // Near ties come from prompts without a closed form: ids that stand for no state, or too few
    // ids.
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
        synthetic_continuation(prompt.ids, lagset, static_cast<int>(prompt.steps.size()));
    for (size_t t = 0; t < prompt.steps.size(); ++t) {
      if (prompt.steps[t].token == expected[t]) continue;
      fail(fmt::format("position {}: token {}, but the closed form of '{}' is {}",
                       prompt.steps[t].position, prompt.steps[t].token, lagset, expected[t]));
    }
  }
}

}  // namespace mkbench
