// Runs lanes of the fault table: plants each fault and judges the result.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "harness/judge/sweep.h"
#include "harness/selftest/fault_table.h"
#include "harness/selftest/recorded_engine.h"
#include "references/engine.h"
#include "references/engine_maker.h"
#include "references/greedy_reference.h"
#include "references/model/published.h"
#include "references/model/weights.h"

namespace mkbench {

// Makes an engine with its fault. Throws Error(kUnsupportedDevice) if it needs a GPU and the
// machine has none. Thread-safe.
using EngineSource =
    std::function<std::unique_ptr<Engine>(const EngineRequest& request, const ModelWeights&)>;

class LaneRunner {
 public:
  // Lanes of CUDA engines run on card `gpu`.
  explicit LaneRunner(EngineSource source, int gpu = 0) : source_(std::move(source)), gpu_(gpu) {}

  // Thread-safe for lanes that need no GPU. An error of the engine becomes the outcome's note, and
  // the failing set is then "error". Defects of references and models throw Error.
  LaneOutcome run(const FaultLane& lane);

 private:
  // A model and everything that judges it; made once.
  struct Case {
    ModelWeights weights;
    GreedyReference reference;
    std::shared_ptr<const Recording> recording;  // null without a committed reference
    SweepTruth sweep;
  };
  const Case& case_of(const std::string& model);
  Case committed_case(const std::string& model);
  // `shape`: null for the first four layers of the 0.6B.
  Case four_layers_case(const ShapeRow* shape);
  std::unique_ptr<Engine> engine(const FaultLane& lane, const ModelWeights& weights,
                                 int max_context) const;
  std::unique_ptr<Engine> twin(const ModelWeights& weights, PlantedFault rounding) const;
  // The ratios of the lane's engine without a fault.
  Ratchet sound_ratios(const FaultLane& lane, const Case& c);
  LaneOutcome run_gate(const FaultLane& lane);
  LaneOutcome run_loader(const FaultLane& lane);
  LaneOutcome run_engine(const FaultLane& lane);
  LaneOutcome run_probes_on(const FaultLane& lane);

  const EngineSource source_;
  const int gpu_;
  std::mutex mutex_;  // guards cases_
  std::map<std::string, Case> cases_;
  std::mutex sound_mutex_;         // guards sound_
  std::mutex shared_state_mutex_;  // held by a lane whose fault makes all engines share memory
  std::map<std::string, Ratchet> sound_;
};

}  // namespace mkbench
