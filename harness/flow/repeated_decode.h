// Decodes the timed tokens of a case with one engine, repeatedly from the same KV rows, without a
// judge or a competitor.
#pragma once

#include <memory>

#include "harness/flow/contestant.h"
#include "harness/flow/late_ids.h"
#include "harness/flow/services.h"
#include "harness/flow/timed_truth.h"

namespace mkbench {

class RepeatedDecode {
 public:
  // Loads the weights and makes the engine.
  RepeatedDecode(const CaseJob& job, const CaseEngine& engine, const CaseServices& services);

  Engine& engine() { return *engine_; }
  // Goes back to the KV rows before the timed tokens; the first call prefills. Throws Interrupted.
  void begin();
  // Decodes the timed tokens; call begin() before.
  void decode();

 private:
  const CaseJob& job_;
  const CaseServices& services_;
  const ModelWeights weights_;
  const TimedTruth truth_;
  const std::unique_ptr<Engine> engine_;
  const EngineCapabilities can_;
  LateIds late_ids_;
  Snapshot start_{};
  bool prefilled_ = false;
  int32_t late_ = 0;
};

}  // namespace mkbench
