// Faults for the gate's own logic: recorded logits, replayed with an edit.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "harness/report/parity_report.h"
#include "harness/selftest/recorded_engine.h"

namespace mkbench {

// Judges an engine by a reference as the gate does.
using Judge = std::function<ParityReport(Engine&, const GreedyReference&)>;

struct GateFault {
  std::string_view name;
  // Replays `recording` with the fault at each of its places in turn; returns a report for each.
  std::function<std::vector<ParityReport>(const std::shared_ptr<const Recording>& recording,
                                          const GreedyReference& reference, const Judge& judge)>
      run;
};

const std::vector<GateFault>& gate_faults();

}  // namespace mkbench
