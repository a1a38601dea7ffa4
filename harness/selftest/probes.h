// Tests of single operators through the Engine interface, on inputs that show faults which greedy
// text would hide.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "references/engine.h"
#include "references/model/weights.h"

namespace mkbench {

// Makes the engine under test with these weights. A fault, if any, is planted by the maker.
using MakeEngine =
    std::function<std::unique_ptr<Engine>(const ModelWeights& weights, int max_context)>;

struct FailedProbe {
  std::string_view name;
  std::string reason;
};

// Runs all probes on variants of `weights`, a small trained model, and returns those that failed. A
// probe also fails if the engine throws.
std::vector<FailedProbe> run_probes(const MakeEngine& make, const ModelWeights& weights);

}  // namespace mkbench
