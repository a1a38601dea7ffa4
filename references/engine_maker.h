// How a host makes an engine that is compiled in: each engine's code defines one constant named
// <engine>_maker (host-twin: host_twin_maker), and mkbench_engine() registers it in CMake.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "references/config.h"
#include "references/engine.h"
#include "references/model/weights.h"

namespace mkbench {

// Work that a diagnostic run of an engine leaves out.
enum class Ablation { kNone, kNoWaits, kNoLoads };

struct EngineRequest {
  // The name of a row of the registry, one of the judge's runs (engines/registry.h), or a path that
  // ends in .so.
  std::string name;
  int max_context = 0;  // positions
  int depth = 0;        // read by the ceiling only: KV rows before the first timed step
  // What the engine shall use, as settings() of an engine of this name says it: the ceiling's read
  // pattern, ring's row of tuning. Empty: the engine chooses. Other engines do not read it.
  std::string settings = {};
  PlantedFault fault = PlantedFault::kNone;
  StepReads reads{};  // read by the ceiling only, of an outline
  // The parent process fills these in from its CaseJob (harness/flow/job.h).
  bool cuda = false;
  int gpu = 0;
  int threads = 0;        // for an engine on a CPU; 0: the engine chooses
  double spin_scale = 1;  // factor on the limits of spin-waits: debuggers slow a kernel down
  // Arithmetic of the judge's runs: the engine's own (the baseline), with the last matmul in fp32,
  // or all in fp32 (the truth).
  enum class Precision { kOwn, kHeadFp32, kFp32 } precision = Precision::kOwn;
};

// An engine for the fault corpus alone, without a row in the registry: plain with hooks for faults.
inline constexpr char kPlainWithFaults[] = "plain-faults";

struct EngineMaker {
  std::string_view name;  // name of the registry's row
  // Throws Error, e.g. kUnsupportedDevice, or kBadInput for a model that the engine cannot run.
  std::unique_ptr<Engine> (*make)(const ModelWeights& weights, const EngineRequest& request);
  // Bytes of memory that make() will take on the request's device. Throws Error(kBadInput) for a
  // model that the engine cannot run, so that it is refused before anything is loaded.
  int64_t (*bytes)(const ModelConfig& config, const EngineRequest& request);
  // Switches an engine of this maker to an ablation and back; the weights stay. Null where the
  // engine has no ablation.
  void (*ablate)(Engine& engine, Ablation ablation) = nullptr;
  // Library settings that the engine pins, for reports. Null where it pins none.
  std::string (*settings)() = nullptr;
  // True where EngineRequest::fault can plant faults inside the kernel.
  bool takes_kernel_faults = false;
  // What the engine can, here and in the next three fields: the table of its exported library follows
  // from it. All of capabilities() but device and max_context. Null where no library is made of it.
  EngineCapabilities (*can)() = nullptr;
  bool timelines = false;  // set_timeline() works for some models
  bool shows = false;      // hidden() and kv_row() work
  // Host memory in which a running decode() of `engine` keeps its position. Null where there is none.
  const volatile int32_t* (*position_word)(const Engine& engine) = nullptr;
};

}  // namespace mkbench
