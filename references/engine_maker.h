// How a host makes an engine that is compiled in: each engine's code defines one constant named
// <engine>_maker (host-twin: host_twin_maker), and mkbench_engine() registers it in CMake.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "references/config.h"
#include "references/engine.h"
#include "references/weights.h"

namespace mkbench {

// The part of the work that a diagnostic run of an engine leaves out.
enum class Ablation { kNone, kNoWaits, kNoLoads };

struct EngineRequest {
  // The name of a row of the registry, one of the judge's runs (engines/registry.h), or a path that
  // ends in .so.
  std::string name;
  int max_context = 0;  // positions
  PlantedFault fault = PlantedFault::kNone;
  // The host fills in these fields from its job.
  bool cuda = false;
  int gpu = 0;
  double spin_scale = 1;  // factor on spin-wait limits: debuggers slow a kernel down
  // How the judge computes: as it is (the baseline), with its last matmul in fp32, or all in fp32
  // (the truth).
  enum class Precision { kOwn, kHeadFp32, kFp32 } precision = Precision::kOwn;
};

struct EngineMaker {
  std::string_view name;  // as in the registry's row
  // Throws Error(kUnsupportedDevice), and Error(kBadInput) for a model that the engine does not
  // support.
  std::unique_ptr<Engine> (*make)(const ModelWeights& weights, const EngineRequest& request);
  // Bytes of the request's device that make() will take.
  int64_t (*bytes)(const ModelConfig& config, const EngineRequest& request);
  // Switches an engine of this maker to an ablation and back; its weights stay. Null: the
  // engine has no ablations.
  void (*ablate)(Engine& engine, Ablation ablation) = nullptr;
  // Returns the pinned library settings, for reports. Null: no settings are pinned.
  std::string (*settings)() = nullptr;
  // True where EngineRequest::fault can plant faults inside the kernel.
  bool takes_kernel_faults = false;
};

}  // namespace mkbench
