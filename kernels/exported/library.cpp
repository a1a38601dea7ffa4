// One of our engines as a library behind references/engine_abi.h, so that two builds of it can be timed
// in one run. EXPORTED_MAKER is the engine's maker (references/engine_maker.h); EXPORTED_CUDA is 1 if the
// engine runs on a GPU.
#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "references/base/error.h"
#include "references/engine_abi.h"
#include "references/engine_maker.h"

#if EXPORTED_CUDA
#include "kernels/cuda_check.h"
#endif

namespace mkbench {

extern const EngineMaker EXPORTED_MAKER;

namespace {

constexpr int kDevice = EXPORTED_CUDA ? MKBENCH_DEVICE_CUDA : MKBENCH_DEVICE_CPU;

// Copies between the host and the device of open(), which may be the host.
void copy(void* to, const void* from, size_t bytes) {
#if EXPORTED_CUDA
  MKBENCH_CUDA(cudaMemcpy(to, from, bytes, cudaMemcpyDefault));
#else
  std::memcpy(to, from, bytes);
#endif
}

ModelConfig config_of(const mkbench_open& open) {
  const mkbench_model& m = *open.model;
  ModelConfig config;
  config.shape = {.hidden = m.hidden,
                  .intermediate = m.intermediate,
                  .layers = m.layers,
                  .heads = m.heads,
                  .kv_heads = m.kv_heads,
                  .head_dim = m.head_dim,
                  .vocab = m.vocab};
  config.rope.theta = m.rope_theta;
  config.rms_norm_eps = m.rms_norm_eps;
  config.tie_word_embeddings = m.tied != 0;
  config.max_positions = open.max_context;
  return config;
}

// The weights of open() in host memory: in place, or copied back from the card.
ModelWeights weights_of(const mkbench_open& open) {
  ModelWeights weights;
  weights.config = config_of(open);
  weights.layers.resize(static_cast<size_t>(weights.config.shape.layers));
  auto memory = std::make_shared<std::vector<std::vector<Bf16>>>();
  for (const NamedTensor& t : tensor_table(weights.config)) {
    const mkbench_tensor* last = open.tensors + open.tensor_count;
    const mkbench_tensor* found = std::find_if(
        open.tensors, last, [&](const mkbench_tensor& one) { return t.name == one.name; });
    if (found == last) throw Error(ErrorKind::kBadInput, "open: found no tensor " + t.name);
    const auto* data = static_cast<const Bf16*>(found->data);
    if (kDevice == MKBENCH_DEVICE_CUDA) {
      std::vector<Bf16>& mine = memory->emplace_back(found->bytes / sizeof(Bf16));
      copy(mine.data(), found->data, found->bytes);
      data = mine.data();
    }
    tensor_of(weights, t) = {data, t.rows, t.cols};
  }
  if (weights.config.tie_word_embeddings) weights.lm_head = weights.embed_tokens;
  weights.owner = std::move(memory);
  return weights;
}

std::unique_ptr<Engine> make(const mkbench_open& open) {
  EngineRequest request;
  request.name = EXPORTED_MAKER.name;
  request.max_context = open.max_context;
  request.cuda = open.device == MKBENCH_DEVICE_CUDA;
  request.gpu = open.gpu;
  return EXPORTED_MAKER.make(weights_of(open), request);
}

}  // namespace
}  // namespace mkbench

struct mkbench_engine {
  std::unique_ptr<mkbench::Engine> engine;
  size_t vocab = 0, hidden = 0;
  std::vector<float> logits, normed;
  std::vector<mkbench::Bf16> vectors;
  std::string error;
};

namespace {

using namespace mkbench;

std::string open_error;

int32_t status_of(ErrorKind kind, bool opening) {
  if (kind == ErrorKind::kIntegrity) return MKBENCH_CHANGED;
  if (!opening) return MKBENCH_FAILED;
  if (kind == ErrorKind::kBadInput) return MKBENCH_UNFIT_MODEL;
  const bool unfit = kind == ErrorKind::kEnvUnfit || kind == ErrorKind::kUnsupportedDevice;
  return unfit ? MKBENCH_UNFIT_ENV : MKBENCH_FAILED;
}

// Runs `work`: no C++ exception may cross the C interface.
template <typename Work>
int32_t guarded(std::string& error, const Work& work, bool opening = false) {
  try {
    work();
    return MKBENCH_OK;
  } catch (const Error& e) {
    error = e.what();
    return status_of(e.kind(), opening);
  } catch (const std::exception& e) {
    error = e.what();
    return MKBENCH_FAILED;
  }
}

int32_t open_engine(const mkbench_open* args, mkbench_engine** engine) {
  const auto work = [&] {
    *engine = new mkbench_engine{make(*args),
                                 static_cast<size_t>(args->model->vocab),
                                 static_cast<size_t>(args->model->hidden),
                                 {},
                                 {},
                                 {},
                                 {}};
  };
  return guarded(open_error, work, true);
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
    if (logits != nullptr) e->logits.resize(static_cast<size_t>(n) * e->vocab);
    const std::vector<int32_t> emitted =
        e->engine->decode(n, forced, logits != nullptr ? e->logits.data() : nullptr);
    copy(ids, emitted.data(), emitted.size() * sizeof(int32_t));
    if (logits != nullptr) copy(logits, e->logits.data(), e->logits.size() * sizeof(float));
  });
}
int32_t decode_vectors(mkbench_engine* e, int32_t n, const uint16_t* vectors, int32_t* ids,
                       float* logits, float* hidden) {
  return guarded(e->error, [&] {
    const auto steps = static_cast<size_t>(n);
    VectorSteps wanted;
    if (vectors != nullptr) {
      e->vectors.resize(steps * e->hidden);
      copy(e->vectors.data(), vectors, e->vectors.size() * sizeof(Bf16));
      wanted.in = e->vectors.data();
    }
    if (logits != nullptr) e->logits.resize(steps * e->vocab);
    if (hidden != nullptr) e->normed.resize(steps * e->hidden);
    wanted.logits_out = logits != nullptr ? e->logits.data() : nullptr;
    wanted.hidden_out = hidden != nullptr ? e->normed.data() : nullptr;
    const std::vector<int32_t> emitted = e->engine->decode_vectors(n, wanted);
    copy(ids, emitted.data(), emitted.size() * sizeof(int32_t));
    if (logits != nullptr) copy(logits, wanted.logits_out, e->logits.size() * sizeof(float));
    if (hidden != nullptr) copy(hidden, wanted.hidden_out, e->normed.size() * sizeof(float));
  });
}
const char* last_error(mkbench_engine* e) { return (e != nullptr ? e->error : open_error).c_str(); }
int32_t set_pending(mkbench_engine* e, int32_t id) {
  return guarded(e->error, [&] { e->engine->set_pending(id); });
}
int32_t save(mkbench_engine* e, mkbench_snapshot* snapshot) {
  return guarded(e->error, [&] {
    const Snapshot saved = e->engine->save();
    if (saved.derived.size() > MKBENCH_MAX_DERIVED) {
      throw Error(ErrorKind::kRuntime, "save: found " + std::to_string(saved.derived.size()) +
                                           " derived values, wanted at most " +
                                           std::to_string(MKBENCH_MAX_DERIVED));
    }
    snapshot->position = saved.position;
    snapshot->pending = saved.pending;
    snapshot->kv_checksum = saved.kv_checksum;
    snapshot->derived_count = static_cast<int32_t>(saved.derived.size());
    std::copy(saved.derived.begin(), saved.derived.end(), snapshot->derived);
  });
}
int32_t restore(mkbench_engine* e, const mkbench_snapshot* s) {
  return guarded(e->error, [&] {
    e->engine->restore({s->position, s->pending, s->kv_checksum,
                        std::vector<float>(s->derived, s->derived + s->derived_count)});
  });
}

}  // namespace

const mkbench_engine_abi* mkbench_engine_table(const mkbench_abi_sizes* host) {
  static const mkbench_engine_abi table = [] {
    mkbench_engine_abi t{};
    t.sizes = MKBENCH_ABI_SIZES;
    t.name = EXPORTED_MAKER.name.data();
    t.devices = kDevice;
    t.can = MKBENCH_CAN_LOGITS | MKBENCH_CAN_FORCED | (EXPORTED_CUDA ? MKBENCH_ONE_LAUNCH : 0);
    t.open = open_engine;
    t.close = close_engine;
    t.reset = reset;
    t.prefill = prefill;
    t.decode = decode;
    t.last_error = last_error;
    t.precision = MKBENCH_PRECISION_FP32_ACCUMULATE;
    t.set_pending = set_pending;
    t.save = save;
    t.restore = restore;
    if (EXPORTED_MAKER.vectors) t.decode_vectors = decode_vectors;
    return t;
  }();
  return mkbench_abi_suits(host) ? &table : nullptr;
}
