// What a case needs from outside: weights, references, engines, memory. Functions, so that tests
// can script them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "harness/engines/registry.h"
#include "harness/judge/ratchet.h"
#include "harness/wire/job.h"
#include "references/engine_maker.h"
#include "references/greedy_reference.h"

namespace mkbench {

// A named time range that a profiler shows; ends with the object.
using RangeGuard = std::shared_ptr<void>;

struct FlowServices {
  std::function<ModelConfig(const std::string& model)> config;
  // Weights of a model; `depth` chooses the lag set of plain `synthetic`.
  std::function<ModelWeights(const std::string& model, int depth)> load;
  // All references of a model by name, checked; empty if there is none.
  std::function<std::vector<GreedyReference>(const std::string& model_name)> references;
  // Name, max_context and fault of the request are the caller's; the service fills in the rest.
  std::function<std::unique_ptr<Engine>(const EngineRequest&, const ModelWeights&)> make_engine;
  // Switches an engine to an ablation and back; its weights stay. Returns why it has none, or an
  // empty string.
  std::function<std::string(const std::string& name, Engine&, Ablation)> ablate;
  // R_rms that reports/ratchet.json commits; nothing where it has no such entry.
  std::function<std::optional<double>(const RatchetKey&)> ratchet;
  // Bytes of the job's device that the engine will take; as with make_engine.
  std::function<int64_t(const EngineRequest&, const ModelConfig&)> bytes;
  std::function<int64_t()> free_bytes;                             // of the job's device
  std::function<std::string(const std::string& engine)> settings;  // pinned library settings
  // Before each timed part: what prepared it is written back from L2 (l2_flush.h). Nothing on a
  // CPU.
  std::function<void()> flush_l2;
  std::function<RangeGuard(const char* name)> range;  // a literal
  // What limits the card's clocks right now, as the driver names it; empty on a CPU. Asked outside
  // every timed part.
  std::function<std::string()> throttle;
  std::function<bool()> stop;  // Ctrl-C has come
};

// Config of a model before its weights are loaded; max_positions is 0 where only the weights know
// it. Throws Error(kBadInput).
ModelConfig model_config(const std::string& model);

// The services of a real host: libtorch, the kernels, this machine.
FlowServices make_services(const CaseJob& job);

}  // namespace mkbench
