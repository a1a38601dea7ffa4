// The maker by which a host opens libraries (host/makers.h).
#include "references/engine_maker.h"

#include "harness/engines/plugin_file.h"
#include "harness/plugin/engine.h"

namespace mkbench {
namespace {

std::unique_ptr<Engine> make(const ModelWeights& weights, const EngineRequest& request) {
  return make_plugin(weights, {.path = request.name,
                               .cuda = request.cuda,
                               .gpu = request.gpu,
                               .max_context = request.max_context});
}

// The library's other allocations are not known.
int64_t bytes(const ModelConfig& config, const EngineRequest& request) {
  return config.weight_bytes() + config.shape.kv_bytes_per_position() * request.max_context;
}

}  // namespace

extern const EngineMaker plugin_maker{.name = kPluginMaker, .make = make, .bytes = bytes};

}  // namespace mkbench
