// The EngineMaker of host-twin, with which a host process creates the engine.
#include "kernels/host_twin/host_twin.h"
#include "references/engine_maker.h"

namespace mkbench {
namespace {

std::unique_ptr<Engine> make(const ModelWeights& weights, const EngineRequest& request) {
  HostTwinOptions options;
  options.max_context = request.max_context;
  options.threads = request.threads;
  options.fault = request.fault;
  return make_host_twin(weights, options);
}

// The twin reads the loaded weights in place, and its KV cache is bf16.
int64_t bytes(const ModelConfig& config, const EngineRequest& request) {
  return config.shape.kv_bytes_per_position() * request.max_context;
}

}  // namespace

extern const EngineMaker host_twin_maker{.name = "host-twin",
                                         .make = make,
                                         .bytes = bytes,
                                         .takes_kernel_faults = true,
                                         .can = host_twin_capabilities,
                                         .timelines = true,
                                         .shows = true,
                                         .position_word = host_twin_position};

}  // namespace mkbench
