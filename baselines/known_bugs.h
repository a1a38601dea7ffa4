// The bugs that decoders are known to have: mistakes of arithmetic that DeviantModel plants in the
// fp32 truth.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "references/model/architecture.h"

namespace mkbench {

struct Hooks;  // baselines/hooks.h

struct Deviation {
  std::shared_ptr<const Hooks> hooks;
  int layer = -1;  // -1: every layer
};

struct KnownBug {
  Deviation deviation;
  std::string name, text;  // as in BugFit
};

// The bugs that a model of this config can have and `rows` rows of it can show: frequent ones, then
// those of single layers, from layer 0 on, then rare ones.
std::vector<KnownBug> known_bugs(const ModelConfig& config, int rows);

}  // namespace mkbench
