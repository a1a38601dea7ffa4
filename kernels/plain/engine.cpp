// The EngineMakers of plain and of the graphs of its phases.
#include "kernels/launch_engine.h"
#include "kernels/plain/megakernel.h"
#include "references/engine_maker.h"

namespace mkbench {
namespace {

PlainOptions options_of(const EngineRequest& request) {
  PlainOptions options;
  for (const PlainLaunch launch : {PlainLaunch::kGraph, PlainLaunch::kGraphOverlapping}) {
    if (request.name == plain_name(launch)) options.launch = launch;
  }
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

EngineCapabilities capabilities() { return plain_capabilities(); }

}  // namespace

extern const EngineMaker plain_maker{.name = plain_name(PlainLaunch::kOne),
                                     .make = make,
                                     .bytes = bytes,
                                     .can = capabilities,
                                     .timelines = true,
                                     .shows = true,
                                     .position_word = LaunchEngine::position_word};
// No libraries are made of these.
extern const EngineMaker graph_serial_maker{
    .name = plain_name(PlainLaunch::kGraph), .make = make, .bytes = bytes};
extern const EngineMaker graph_pdl_maker{
    .name = plain_name(PlainLaunch::kGraphOverlapping), .make = make, .bytes = bytes};

}  // namespace mkbench
