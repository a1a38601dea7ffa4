#include "harness/host/services.h"

#include <fmt/format.h>

#include <cstdlib>

#include "baselines/eager.h"
#include "harness/device/gpu_state.h"
#include "harness/device/l2_flush.h"
#include "harness/device/nvtx.h"
#include "harness/host/gate.h"
#include "harness/host/machine.h"
#include "harness/plugin/engine.h"
#include "harness/selftest/faulty_engine.h"
#include "harness/wire/interrupt.h"
#include "kernels/host_twin/host_twin.h"
#include "kernels/plain/megakernel.h"
#include "kernels/ring/megakernel.h"
#include "references/base/error.h"
#include "references/snapshot.h"

namespace mkbench {
namespace {

bool is_eager(const std::string& name) { return engine_of_run(name) == kJudgeName; }

// Below this many parameters an op is shorter than the barrier that ends it, and a second CPU
// thread is only waited for: on two busy cores the main job on tiny ran into its 300 s deadline
// with two threads, with one it took 25 s (2026-11).
constexpr int64_t kParametersWorthThreads = 10'000'000;

EagerOptions eager_options(const CaseJob& job, const EngineRequest& request,
                           const ModelConfig& config) {
  EagerOptions options;
  const int64_t parameters = config.shape.parameters(config.tie_word_embeddings);
  options.threads = parameters < kParametersWorthThreads ? 1 : 0;
  options.cuda = job.device == "cuda";
  options.gpu = job.gpu;
  options.fp32 = request.name == kTruthName;
  options.head_fp32 = request.name == kHeadFp32Name;
  options.max_context = request.max_context;
  options.fault = request.fault;
  return options;
}

PlainOptions plain_options(const CaseJob& job, const EngineRequest& request) {
  PlainOptions options;
  options.gpu = job.gpu;
  options.max_context = request.max_context;
  options.spin_scale = job.spin_scale;
  options.fault = request.fault;
  return options;
}

RingOptions ring_options(const CaseJob& job, const EngineRequest& request) {
  RingOptions options;
  options.gpu = job.gpu;
  options.max_context = request.max_context;
  options.spin_scale = job.spin_scale;
  options.fault = request.fault;
  return options;
}

std::string ablate_engine(const std::string& name, Engine& engine, Ablation ablation) {
  if (name != "ring") return name + " has no ablations; ring has";
  RingOptions options;
  options.ablation = ablation == Ablation::kNoWaits   ? RingAblation::kNoWaits
                     : ablation == Ablation::kNoLoads ? RingAblation::kNoLoads
                                                      : RingAblation::kNone;
  retune_ring(engine, options);
  return "";
}

std::unique_ptr<Engine> load_engine(const CaseJob& job, const EngineRequest& request,
                                    const ModelWeights& weights) {
  if (request.fault != PlantedFault::kNone) {
    throw Error(ErrorKind::kBadInput,
                fmt::format("engine {}: a fault cannot be planted in it", request.name));
  }
  return make_plugin(weights, {.path = request.name,
                               .cuda = job.device == "cuda",
                               .gpu = job.gpu,
                               .max_context = request.max_context});
}

// A fault inside a kernel is in the host twin alone; CUDA engines take those of their host side.
void require_plantable(const std::string& engine, PlantedFault fault) {
  if (fault == PlantedFault::kNone || engine == "host-twin") return;
  if (planted_fault_site(fault) != FaultSite::kKernel) return;
  throw Error(ErrorKind::kBadInput,
              fmt::format("--plant-fault {}: {} has no hook for it; host-twin has",
                          planted_fault_name(fault), engine));
}

std::unique_ptr<Engine> make_sound_engine(const CaseJob& job, const EngineRequest& request,
                                          const ModelWeights& weights) {
  if (is_eager(request.name))
    return make_eager(weights, eager_options(job, request, weights.config));
  if (is_plugin(request.name)) return load_engine(job, request, weights);
  const bool cuda = job.device == "cuda";
  if (request.name == "plain" || request.name == "ring") {
    if (!cuda) {
      throw Error(
          ErrorKind::kUnsupportedDevice,
          request.name + " is a CUDA kernel and --device is cpu; host-twin is its twin on a CPU");
    }
    return request.name == "ring" ? make_ring(weights, ring_options(job, request))
                                  : make_plain(weights, plain_options(job, request));
  }
  if (request.name == "host-twin") {
    if (cuda) {
      throw Error(ErrorKind::kUnsupportedDevice,
                  "host-twin runs on a CPU and --device is cuda; use --device cpu");
    }
    HostTwinOptions options;
    options.max_context = request.max_context;
    options.fault = request.fault;
    return make_host_twin(weights, options);
  }
  throw Error(ErrorKind::kBadInput, fmt::format("engine '{}' is unknown", request.name));
}

std::unique_ptr<Engine> make_engine(const CaseJob& job, const EngineRequest& request,
                                    const ModelWeights& weights) {
  require_plantable(request.name, request.fault);
  return with_fault_around(
      make_sound_engine(job, request, with_planted_fault(weights, request.fault)), request.fault);
}

int64_t engine_bytes(const CaseJob& job, const EngineRequest& request, const ModelConfig& config) {
  const bool cuda = job.device == "cuda";
  if (is_eager(request.name)) return eager_bytes(config, eager_options(job, request, config));
  if (is_plugin(request.name)) return plugin_bytes(config, request.max_context);
  if (request.name == "plain")
    return cuda ? plain_device_bytes(config, plain_options(job, request)) : 0;
  // Another layer shape is refused where the engine is made, with every dimension that differs.
  if (request.name == "ring")
    return cuda ? ring_device_bytes(config, ring_options(job, request)) : 0;
  // The twin reads the loaded weights in place and keeps a bf16 cache.
  return cuda ? 0 : config.shape.kv_bytes_per_position() * request.max_context;
}

}  // namespace

ModelConfig model_config(const std::string& model) {
  const ModelSpec spec = resolve_model(model);
  if (spec.kind != ModelSpec::Kind::kSynthetic) return read_config(spec.folder / "config.json");
  ModelConfig config;  // the rest is known when the weights are made
  config.shape = kQwen3_0_6B;
  config.tie_word_embeddings = true;
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
    return make_engine(job, request, weights);
  };
  services.ablate = ablate_engine;
  services.ratchet = [](const RatchetKey& key) {
    return find_ratchet(std::filesystem::path(MKBENCH_SOURCE_DIR) / "reports" / "ratchet.json",
                        key);
  };
  services.bytes = [job](const EngineRequest& request, const ModelConfig& config) {
    return engine_bytes(job, request, config);
  };
  services.free_bytes = [job] {
    return job.device == "cuda" ? device_free_bytes(job.gpu) : host_free_bytes();
  };
  services.settings = [](const std::string& engine) {
    return is_eager(engine) ? eager_settings() : std::string();
  };
  services.flush_l2 = [job, flush = std::shared_ptr<L2Flush>()]() mutable {
    if (job.device != "cuda") return;
    if (flush == nullptr) flush = std::make_shared<L2Flush>(job.gpu);
    flush->run();
  };
  services.range = [](const char* name) -> RangeGuard { return std::make_shared<NvtxRange>(name); };
  services.throttle = [job, bus = std::string()]() mutable -> std::string {
    if (job.device != "cuda") return "";
    if (bus.empty()) bus = device_bus_id(job.gpu);
    return read_gpu_state(bus).throttle_text;
  };
  services.stop = [] { return interrupt_count() > 0; };
  return services;
}

}  // namespace mkbench
