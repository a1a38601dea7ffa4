#include "harness/host/services.h"

#include <fmt/format.h>

#include "harness/device/gpu_state.h"
#include "harness/device/l2_flush.h"
#include "harness/device/nvtx.h"
#include "harness/engines/plugin_file.h"
#include "harness/host/machine.h"
#include "harness/host/makers.h"
#include "harness/plugin/engine.h"
#include "harness/selftest/faulty_engine.h"
#include "harness/wire/interrupt.h"
#include "references/base/error.h"
#include "references/model_row.h"
#include "references/snapshot.h"

namespace mkbench {
namespace {

// The maker of a named engine, or of a run of the judge; null for plugins and unknown names.
const EngineMaker* find_maker(const std::string& run) {
  const std::string name = engine_of_run(run);
  for (const EngineMaker* maker : engine_makers()) {
    if (maker->name == name) return maker;
  }
  return nullptr;
}

// What the caller asks for, on the job's device.
EngineRequest on_device_of(const CaseJob& job, EngineRequest request) {
  using Precision = EngineRequest::Precision;
  request.cuda = job.cuda();
  request.gpu = job.gpu;
  request.spin_scale = job.spin_scale;
  request.precision = request.name == kTruthName      ? Precision::kFp32
                      : request.name == kHeadFp32Name ? Precision::kHeadFp32
                                                      : Precision::kOwn;
  return request;
}

// Whether the registry says that an engine runs on the request's device. A plugin says so itself.
bool runs_there(const EngineRequest& request) {
  const EngineRow* row = find_engine(engine_of_run(request.name));
  return row == nullptr || row->runs_on(request.cuda);
}

std::string ablate_engine(const std::string& name, Engine& engine, Ablation ablation) {
  const EngineMaker* maker = find_maker(name);
  if (maker != nullptr && maker->ablate != nullptr) {
    maker->ablate(engine, ablation);
    return "";
  }
  std::string able;
  for (const EngineMaker* other : engine_makers()) {
    if (other->ablate != nullptr) able += (able.empty() ? "" : ", ") + std::string(other->name);
  }
  return fmt::format("{} has no ablations; {} has", name, able);
}

std::unique_ptr<Engine> make_plugin_engine(const EngineRequest& request,
                                           const ModelWeights& weights) {
  if (request.fault != PlantedFault::kNone) {
    throw Error(ErrorKind::kBadInput,
                fmt::format("engine {}: a fault cannot be planted in it", request.name));
  }
  return make_plugin(weights, {.path = request.name,
                               .cuda = request.cuda,
                               .gpu = request.gpu,
                               .max_context = request.max_context});
}

// Faults inside a kernel need an engine that has hooks for them; those of the host side do not.
void require_plantable(const EngineRequest& request, const EngineMaker& maker) {
  if (request.fault == PlantedFault::kNone || maker.takes_kernel_faults) return;
  if (planted_fault_site(request.fault) != FaultSite::kKernel) return;
  throw Error(ErrorKind::kBadInput,
              fmt::format("--plant-fault {}: {} has no hook for it; host-twin has",
                          planted_fault_name(request.fault), request.name));
}

std::unique_ptr<Engine> make_sound_engine(const EngineRequest& request,
                                          const ModelWeights& weights) {
  if (is_plugin(request.name)) return make_plugin_engine(request, weights);
  const EngineMaker* maker = find_maker(request.name);
  if (maker == nullptr)
    throw Error(ErrorKind::kBadInput, fmt::format("engine '{}' is unknown", request.name));
  require_plantable(request, *maker);
  if (runs_there(request)) return maker->make(weights, request);
  throw Error(ErrorKind::kUnsupportedDevice,
              request.name + (request.cuda ? " runs on a CPU and --device is cuda; use --device cpu"
                                           : " is a CUDA kernel and --device is cpu; host-twin is "
                                             "its twin on a CPU"));
}

std::unique_ptr<Engine> make_engine(const EngineRequest& request, const ModelWeights& weights) {
  return with_fault_around(make_sound_engine(request, with_planted_fault(weights, request.fault)),
                           request.fault);
}

int64_t engine_bytes(const EngineRequest& request, const ModelConfig& config) {
  if (is_plugin(request.name)) return plugin_bytes(config, request.max_context);
  const EngineMaker* maker = find_maker(request.name);
  return maker != nullptr && runs_there(request) ? maker->bytes(config, request) : 0;
}

}  // namespace

ModelConfig model_config(const std::string& model) {
  const ModelSpec spec = resolve_model(model);
  if (!is_analytic(spec.row)) return read_config(spec.folder / "config.json");
  ModelConfig config;  // the rest is known when the weights are made
  config.shape = spec.row->shape;
  config.tie_word_embeddings = spec.row->tied;
  return config;
}

namespace {

std::vector<GreedyReference> read_references(const CaseJob& job, const std::string& name) {
  const std::filesystem::path folder =
      job.reference_dir.empty() ? data_dir() : std::filesystem::path(job.reference_dir);
  std::vector<GreedyReference> references;
  for (const auto& path : find_references(folder, name))
    references.push_back(read_reference(path, job.reference_dir.empty()));
  return references;
}

}  // namespace

FlowServices make_services(const CaseJob& job) {
  nvtx_level() = static_cast<NvtxLevel>(job.nvtx);
  FlowServices services;
  services.config = model_config;
  services.load = [](const std::string& model, int depth) {
    return load_model(resolve_model(model), depth);
  };
  services.references = [job](const std::string& name) { return read_references(job, name); };
  services.make_engine = [job](const EngineRequest& request, const ModelWeights& weights) {
    return make_engine(on_device_of(job, request), weights);
  };
  services.ablate = ablate_engine;
  services.ratchet = [](const RatchetKey& key) {
    return find_ratchet(std::filesystem::path(MKBENCH_SOURCE_DIR) / "reports" / "ratchet.json",
                        key);
  };
  services.bytes = [job](const EngineRequest& request, const ModelConfig& config) {
    return engine_bytes(on_device_of(job, request), config);
  };
  services.free_bytes = [job] {
    return job.cuda() ? device_free_bytes(job.gpu) : host_free_bytes();
  };
  services.settings = [](const std::string& engine) -> std::string {
    const EngineMaker* maker = find_maker(engine);
    return maker != nullptr && maker->settings != nullptr ? maker->settings() : "";
  };
  services.flush_l2 = [job, flush = std::shared_ptr<L2Flush>()]() mutable {
    if (!job.cuda()) return;
    if (flush == nullptr) flush = std::make_shared<L2Flush>(job.gpu);
    flush->run();
  };
  services.range = [](const char* name) -> RangeGuard { return std::make_shared<NvtxRange>(name); };
  services.throttle = [job, bus = std::string()]() mutable -> std::string {
    if (!job.cuda()) return "";
    if (bus.empty()) bus = device_bus_id(job.gpu);
    return read_gpu_state(bus).throttle_text;
  };
  services.stop = [] { return interrupt_count() > 0; };
  return services;
}

}  // namespace mkbench
