#include "harness/host/factory.h"

#include <fmt/format.h>

#include "harness/engines/plugin_file.h"
#include "harness/engines/registry.h"
#include "harness/host/faulty_engine.h"
#include "references/base/error.h"

namespace mkbench {
namespace {

// Whether the registry lets the engine run on the request's device. A plugin is not in the registry
// and refuses a device itself.
bool runs_there(const EngineRequest& request) {
  const EngineRow* row = find_engine(run_of(request.name).engine);
  return row == nullptr || row->runs_on(request.cuda);
}

// Throws Error(kBadInput) unless the fault can be planted: the model must have the part that the
// fault changes; for a fault inside a kernel, the engine must have a hook; plugins take no faults.
void require_plantable(const EngineRequest& request, const EngineMaker& maker,
                       const ModelConfig& config) {
  if (const std::string_view missing = missing_for(request.fault, config); !missing.empty())
    throw Error(ErrorKind::kBadInput, fmt::format("--plant-fault {}: wanted a model with {}",
                                                  planted_fault_name(request.fault), missing));
  if (request.fault == PlantedFault::kNone || maker.takes_kernel_faults) return;
  if (is_plugin(request.name)) {
    throw Error(ErrorKind::kBadInput,
                fmt::format("engine {}: a fault cannot be planted in it", request.name));
  }
  if (planted_fault_site(request.fault) != FaultSite::kKernel) return;
  throw Error(ErrorKind::kBadInput,
              fmt::format("--plant-fault {}: {} has no hook for it; host-twin has",
                          planted_fault_name(request.fault), request.name));
}

}  // namespace

// The maker of an engine, of one of the judge's runs, or of plugins; null for unknown names.
const EngineMaker* EngineFactory::find(const std::string& run) const {
  const std::string name = is_plugin(run) ? kPluginMaker : run_of(run).engine;
  for (const EngineMaker* maker : makers_) {
    if (maker->name == name) return maker;
  }
  return nullptr;
}

const EngineMaker& EngineFactory::need(const EngineRequest& request) const {
  const EngineMaker* maker = find(request.name);
  if (maker == nullptr)
    throw Error(ErrorKind::kBadInput, fmt::format("engine '{}' is unknown", request.name));
  return *maker;
}

std::unique_ptr<Engine> EngineFactory::make(const EngineRequest& asked,
                                            const ModelWeights& weights) const {
  const EngineRequest request = in_host(asked);
  const EngineMaker& maker = need(request);
  require_plantable(request, maker, weights.config);
  if (!runs_there(request)) {
    throw Error(
        ErrorKind::kUnsupportedDevice,
        request.name + (request.cuda ? " runs on a CPU and --device is cuda; use --device cpu"
                                     : " needs a GPU and --device is cpu, where host-twin runs the "
                                       "kernels' schedule"));
  }
  return with_fault_around(maker.make(with_planted_fault(weights, request.fault), request),
                           request.fault);
}

int64_t EngineFactory::bytes(const EngineRequest& asked, const ModelConfig& config) const {
  const EngineRequest request = in_host(asked);
  const EngineMaker* maker = find(request.name);
  return maker != nullptr && runs_there(request) ? maker->bytes(config, request) : 0;
}

std::string EngineFactory::ablate(const std::string& name, Engine& engine,
                                  Ablation ablation) const {
  const EngineMaker* maker = find(name);
  if (maker != nullptr && maker->ablate != nullptr) {
    maker->ablate(engine, ablation);
    return "";
  }
  std::string able;
  for (const EngineMaker* other : makers_) {
    if (other->ablate != nullptr) able += (able.empty() ? "" : ", ") + std::string(other->name);
  }
  return fmt::format("{} has no ablations; {} has", name, able);
}

std::string EngineFactory::settings(const std::string& name) const {
  const EngineMaker* maker = find(name);
  return maker != nullptr && maker->settings != nullptr ? maker->settings() : "";
}

}  // namespace mkbench
