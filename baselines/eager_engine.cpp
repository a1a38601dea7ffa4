// The EngineMakers of eager, graph and compiled, and the memory that these engines take.
#include <algorithm>

#include "baselines/eager.h"
#include "references/engine_maker.h"

namespace mkbench {
namespace {

// Models with fewer parameters get one CPU thread, because the barrier that ends an op takes longer
// than the op: on two busy cores a run of mkbench on the model tiny exceeded its 300 s deadline
// with two threads and took 25 s with one (2026-11).
constexpr int64_t kParametersWorthThreads = 10'000'000;
constexpr int kLeastBucket = 256;
// Memory of one captured step and its stream's cuBLAS workspaces (H100, 632 kernels, torch 2.11).
constexpr int64_t kGraphBytes = 100'000'000;
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

std::vector<int> kv_buckets(int max_context) {
  std::vector<int> buckets;
  for (int rows = kLeastBucket; rows < max_context; rows *= 2) buckets.push_back(rows);
  buckets.push_back(max_context);
  return buckets;
}

int64_t eager_bytes(const ModelConfig& config, const EagerOptions& options) {
  const ModelShape& s = config.shape;
  const int64_t element = options.fp32 ? 4 : 2;
  // On a CPU the weights alias the loader's memory, except the matrices that in_one_piece() copies.
  int64_t bytes = options.cuda ? 2 * s.parameters(config.tie_word_embeddings) : 0;
  if (!options.cuda && options.static_steps())
    bytes += 2LL * s.layers * s.hidden * (s.qkv_width() + 2 * s.intermediate);
  // head_fp32 keeps an fp32 LM head; the truth widens one matrix at a time, at most the LM head.
  if (options.head_fp32 || options.fp32) bytes += 4 * s.embedding_parameters();
  const int64_t context = options.max_context;
  if (options.cuda) {
    // libtorch's CUDA allocator keeps the memory of a prefill's last chunk: 8 bytes for each of its
    // scores, and K and V repeated for every head. The CPU's allocator gives such memory back.
    bytes += 8 * s.heads * std::min<int64_t>(kPrefillChunkRows, context) * context;
    bytes += 2 * s.heads * s.head_dim * context * element;
    if (options.static_steps())
      bytes += kGraphBytes * static_cast<int64_t>(kv_buckets(options.max_context).size());
  }
  const int64_t kv_elements = 2LL * s.layers * s.kv_width() * context;
  return bytes + element * kv_elements;
}

extern const EngineMaker eager_maker{
    .name = "eager", .make = make, .bytes = bytes, .settings = eager_settings};
extern const EngineMaker graph_maker{
    .name = kGraph, .make = make, .bytes = bytes, .settings = eager_settings};
extern const EngineMaker compiled_maker{
    .name = kCompiled, .make = make, .bytes = bytes, .settings = eager_settings};

}  // namespace mkbench
