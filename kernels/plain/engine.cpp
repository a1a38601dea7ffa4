// The EngineMaker of plain, with which a host process creates the engine.
#include "kernels/launch_engine.h"
#include "kernels/plain/megakernel.h"
#include "references/engine_maker.h"

namespace mkbench {
namespace {

PlainOptions options_of(const EngineRequest& request) {
  PlainOptions options;
  options.gpu = request.gpu;
  options.max_context = request.max_context;
  options.spin_scale = request.spin_scale;
  options.fault = request.fault;
  return options;
}

std::unique_ptr<Engine> make(const ModelWeights& weights, const EngineRequest& request) {
  return make_plain(weights, options_of(request));
}

int64_t bytes(const ModelConfig& config, const EngineRequest& request) {
  return plain_device_bytes(config, options_of(request));
}

}  // namespace

extern const EngineMaker plain_maker{.name = "plain",
                                     .make = make,
                                     .bytes = bytes,
                                     .can = plain_capabilities,
                                     .timelines = true,
                                     .shows = true,
                                     .position_word = LaunchEngine::position_word};

}  // namespace mkbench
