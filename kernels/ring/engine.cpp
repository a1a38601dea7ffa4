// The EngineMaker of ring, with which a host process creates the engine.
#include "kernels/launch_engine.h"
#include "kernels/ring/megakernel.h"
#include "references/engine_maker.h"

namespace mkbench {
namespace {

RingOptions options_of(const EngineRequest& request) {
  RingOptions options;
  options.gpu = request.gpu;
  options.max_context = request.max_context;
  options.spin_scale = request.spin_scale;
  options.fault = request.fault;
  options.tuning = request.settings;
  return options;
}

std::unique_ptr<Engine> make(const ModelWeights& weights, const EngineRequest& request) {
  return make_ring(weights, options_of(request));
}

int64_t bytes(const ModelConfig& config, const EngineRequest& request) {
  return ring_device_bytes(config, options_of(request));
}

void ablate(Engine& engine, Ablation ablation) {
  RingOptions options;
  options.ablation = ablation == Ablation::kNoWaits   ? RingAblation::kNoWaits
                     : ablation == Ablation::kNoLoads ? RingAblation::kNoLoads
                                                      : RingAblation::kNone;
  retune_ring(engine, options);
}

}  // namespace

extern const EngineMaker ring_maker{.name = "ring",
                                    .make = make,
                                    .bytes = bytes,
                                    .ablate = ablate,
                                    .can = ring_capabilities,
                                    .timelines = true,
                                    .shows = true,
                                    .position_word = LaunchEngine::position_word};

}  // namespace mkbench
