// Operator tests through the contract of an engine, on inputs that show faults which greedy text
// would hide.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "references/engine.h"
#include "references/weights.h"

namespace mkbench {

// Makes the engine under test with these weights. A fault, if any, is planted by the maker.
using EngineMaker =
    std::function<std::unique_ptr<Engine>(const ModelWeights& weights, int max_context)>;

struct ProbeResult {
  std::string_view name;
  bool passed = false;
  double value = 0;    // what was measured, where the probe is a number
  std::string detail;  // of a failure
};

struct Probe {
  std::string_view name;
  std::string_view promise;  // one line, for people
};

// In the order in which run_probes() runs them.
const std::vector<Probe>& probe_table();

// Runs all probes on variants of `weights`, a small trained model. A probe fails where the engine
// throws in it.
std::vector<ProbeResult> run_probes(const EngineMaker& make, const ModelWeights& weights);

}  // namespace mkbench
