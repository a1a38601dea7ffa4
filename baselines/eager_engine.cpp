// The makers of eager, graph and compiled, for hosts.
#include "baselines/eager.h"
#include "references/engine_maker.h"

namespace mkbench {
namespace {

// Models with fewer parameters get one CPU thread, because the barrier that ends an op takes longer
// than the op: on two busy cores the main job on tiny ran into its 300 s deadline with two threads
// and took 25 s with one (2026-11).
constexpr int64_t kParametersWorthThreads = 10'000'000;
constexpr std::string_view kGraph = "graph", kCompiled = "compiled";

EagerOptions options_of(const ModelConfig& config, const EngineRequest& request) {
  using Precision = EngineRequest::Precision;
  EagerOptions options;
  const int64_t parameters = config.shape.parameters(config.tie_word_embeddings);
  options.threads = parameters < kParametersWorthThreads ? 1 : 0;
  options.cuda = request.cuda;
  options.gpu = request.gpu;
  options.fp32 = request.precision == Precision::kFp32;
  options.head_fp32 = request.precision == Precision::kHeadFp32;
  options.max_context = request.max_context;
  options.fault = request.fault;
  options.graph = request.name == kGraph;
  options.compiled = request.name == kCompiled;
  return options;
}

std::unique_ptr<Engine> make(const ModelWeights& weights, const EngineRequest& request) {
  return make_eager(weights, options_of(weights.config, request));
}

int64_t bytes(const ModelConfig& config, const EngineRequest& request) {
  return eager_bytes(config, options_of(config, request));
}

}  // namespace

extern const EngineMaker eager_maker{
    .name = "eager", .make = make, .bytes = bytes, .settings = eager_settings};
extern const EngineMaker graph_maker{
    .name = kGraph, .make = make, .bytes = bytes, .settings = eager_settings};
extern const EngineMaker compiled_maker{
    .name = kCompiled, .make = make, .bytes = bytes, .settings = eager_settings};

}  // namespace mkbench
