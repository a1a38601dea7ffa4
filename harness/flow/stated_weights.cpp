#include "harness/flow/stated_weights.h"

namespace mkbench {

std::optional<StatedWeights> take_stated_weights(const CaseServices& services,
                                                 const std::vector<Contestant*>& candidates,
                                                 const std::function<void(Contestant&)>& open,
                                                 EventSink& sink) {
  std::optional<StatedWeights> found = services.values_found();
  if (!found) services.begin_values();
  for (Contestant* c : candidates) {
    if (!found) {
      guard_engine(sink, *c, [&] {
        open(*c);
        services.take_values(*c->engine);
      });
      c->engine.reset();
      if (!c->alive) continue;
      found = services.values_found();  // an error here is the truth's, and ends the case
    }
    if (!found) continue;
    c->own_weights = found->own;
    c->declared_bytes = found->declared;
    if (!found->problem.empty()) fail_engine(sink, *c, Verdict::kFailFidelity, found->problem);
  }
  return found;
}

}  // namespace mkbench
