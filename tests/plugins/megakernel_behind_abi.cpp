// plain (or, with BEHIND_RING, ring) as a library behind the engine ABI: a quick engine of one
// launch, of which a test can load two copies.
#include <cuda_runtime.h>

#include <algorithm>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "kernels/plain/megakernel.h"
#include "kernels/ring/megakernel.h"
#include "references/base/error.h"
#include "references/engine_abi.h"
#include "references/weights.h"

namespace {

using namespace mkbench;

void check(cudaError_t status) {
  if (status != cudaSuccess) throw std::runtime_error(cudaGetErrorString(status));
}

// The weights of open(), copied back from the device.
ModelWeights weights_of(const mkbench_open& open) {
  const mkbench_model& m = *open.model;
  ModelWeights weights;
  ModelConfig& config = weights.config;
  config.shape = {.hidden = m.hidden,
                  .intermediate = m.intermediate,
                  .layers = m.layers,
                  .heads = m.heads,
                  .kv_heads = m.kv_heads,
                  .head_dim = m.head_dim,
                  .vocab = m.vocab};
  config.rope_theta = m.rope_theta;
  config.rms_norm_eps = m.rms_norm_eps;
  config.tie_word_embeddings = m.tied != 0;
  config.max_positions = open.max_context;
  weights.layers.resize(static_cast<size_t>(m.layers));
  auto memory = std::make_shared<std::vector<std::vector<Bf16>>>();
  for (const NamedTensor& t : tensor_table(config)) {
    Matrix& matrix = tensor_of(weights, t);
    if (t.global == &ModelWeights::lm_head && m.tied != 0) {
      matrix = weights.embed_tokens;
      continue;
    }
    for (uint32_t i = 0; i < open.tensor_count; ++i) {
      if (t.name != open.tensors[i].name) continue;
      std::vector<Bf16>& copy = memory->emplace_back(open.tensors[i].bytes / sizeof(Bf16));
      check(cudaMemcpy(copy.data(), open.tensors[i].data, open.tensors[i].bytes,
                       cudaMemcpyDeviceToHost));
      matrix = {copy.data(), t.rows, t.cols};
    }
  }
  weights.owner = std::move(memory);
  return weights;
}

std::unique_ptr<Engine> make(const mkbench_open& open) {
#if defined(BEHIND_RING)
  RingOptions options;
  options.gpu = open.gpu;
  options.max_context = open.max_context;
  return make_ring(weights_of(open), options);
#else
  PlainOptions options;
  options.gpu = open.gpu;
  options.max_context = open.max_context;
  return make_plain(weights_of(open), options);
#endif
}

}  // namespace

struct mkbench_engine {
  std::unique_ptr<Engine> engine;
  int vocab = 0;
  std::vector<float> logits;
  std::string error;
};

namespace {

std::string open_error;

// Runs `work`: no C++ exception may cross the C interface.
template <typename Work>
int32_t guarded(std::string& error, const Work& work) {
  try {
    work();
    return MKBENCH_OK;
  } catch (const std::exception& e) {
    error = e.what();
    return MKBENCH_FAILED;
  }
}

int32_t open_engine(const mkbench_open* args, mkbench_engine** engine) {
  return guarded(open_error, [&] {
    *engine = new mkbench_engine{make(*args), args->model->vocab, {}, {}};
  });
}
void close_engine(mkbench_engine* e) { delete e; }
int32_t reset(mkbench_engine* e) {
  return guarded(e->error, [&] { e->engine->reset(); });
}
int32_t prefill(mkbench_engine* e, const int32_t* ids, int32_t n) {
  return guarded(e->error, [&] { e->engine->prefill({ids, static_cast<size_t>(n)}); });
}
int32_t decode(mkbench_engine* e, int32_t n, const int32_t* forced, int32_t* ids, float* logits) {
  return guarded(e->error, [&] {
    if (forced != nullptr) e->engine->set_pending(forced[0]);
    if (logits != nullptr) e->logits.resize(static_cast<size_t>(n) * static_cast<size_t>(e->vocab));
    const std::vector<int32_t> emitted =
        e->engine->decode(n, forced, logits != nullptr ? e->logits.data() : nullptr);
    check(
        cudaMemcpy(ids, emitted.data(), emitted.size() * sizeof(int32_t), cudaMemcpyHostToDevice));
    if (logits == nullptr) return;
    check(cudaMemcpy(logits, e->logits.data(), e->logits.size() * sizeof(float),
                     cudaMemcpyHostToDevice));
  });
}
const char* last_error(mkbench_engine* e) { return (e != nullptr ? e->error : open_error).c_str(); }
int32_t set_pending(mkbench_engine* e, int32_t id) {
  return guarded(e->error, [&] { e->engine->set_pending(id); });
}
int32_t save(mkbench_engine* e, mkbench_snapshot* snapshot) {
  return guarded(e->error, [&] {
    const Snapshot saved = e->engine->save();
    if (saved.derived.size() > MKBENCH_MAX_DERIVED) throw std::runtime_error("too many values");
    snapshot->position = saved.position;
    snapshot->pending = saved.pending;
    snapshot->kv_checksum = saved.kv_checksum;
    snapshot->derived_count = static_cast<int32_t>(saved.derived.size());
    std::copy(saved.derived.begin(), saved.derived.end(), snapshot->derived);
  });
}
int32_t restore(mkbench_engine* e, const mkbench_snapshot* s) {
  try {
    e->engine->restore({s->position, s->pending, s->kv_checksum,
                        std::vector<float>(s->derived, s->derived + s->derived_count)});
    return MKBENCH_OK;
  } catch (const Error& error) {
    e->error = error.what();
    return error.kind() == ErrorKind::kIntegrity ? MKBENCH_CHANGED : MKBENCH_FAILED;
  }
}

}  // namespace

const mkbench_engine_abi* mkbench_engine_table(const mkbench_abi_sizes* host) {
  static const mkbench_engine_abi table = [] {
    mkbench_engine_abi t{};
    t.sizes = MKBENCH_ABI_SIZES;
    t.name = "megakernel";
    t.devices = MKBENCH_DEVICE_CUDA;
    t.can = MKBENCH_CAN_LOGITS | MKBENCH_CAN_FORCED | MKBENCH_ONE_LAUNCH;
    t.open = open_engine;
    t.close = close_engine;
    t.reset = reset;
    t.prefill = prefill;
    t.decode = decode;
    t.last_error = last_error;
    t.set_pending = set_pending;
    t.save = save;
    t.restore = restore;
    return t;
  }();
  return mkbench_abi_suits(host) ? &table : nullptr;
}
