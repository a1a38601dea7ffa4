// One of our engines as a library behind references/engine_abi.h, so that two builds of it can be timed
// in one run. EXPORTED_MAKER is the engine's maker (references/engine_maker.h); EXPORTED_CUDA is 1 if the
// engine runs on a GPU. Its table offers what the maker says that the engine can.
#include <algorithm>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
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

RopeScaling scaling_of(int32_t scaling) {
  if (scaling == MKBENCH_ROPE_UNSCALED) return RopeScaling::kNone;
  if (scaling == MKBENCH_ROPE_LINEAR) return RopeScaling::kLinear;
  if (scaling == MKBENCH_ROPE_LLAMA3) return RopeScaling::kLlama3;
  throw Error(ErrorKind::kBadInput,
              "open: rope_scaling: found " + std::to_string(scaling) + ", wanted 0 to 2");
}

Activation activation_of(int32_t activation) {
  if (activation == MKBENCH_SILU) return Activation::kSilu;
  if (activation == MKBENCH_GELU_TANH) return Activation::kGeluTanh;
  throw Error(ErrorKind::kBadInput,
              "open: activation: found " + std::to_string(activation) + ", wanted 0 or 1");
}

ModelConfig config_of(const mkbench_open& open) {
  const mkbench_model m = mkbench_own(open.model);
  ModelConfig config;
  config.shape = {.hidden = m.hidden,
                  .intermediate = m.intermediate,
                  .layers = m.layers,
                  .heads = m.heads,
                  .kv_heads = m.kv_heads,
                  .head_dim = m.head_dim,
                  .vocab = m.vocab,
                  .qk_norm = m.qk_norm != 0,
                  .qkv_bias = m.qkv_bias != 0,
                  .norm_offset = m.norm_offset,
                  .activation = activation_of(m.activation),
                  .embedding_multiplier = m.embedding_multiplier == 0 ? 1 : m.embedding_multiplier};
  config.rope = {.theta = m.rope_theta,
                 .scaling = scaling_of(m.rope_scaling),
                 .factor = m.rope_factor,
                 .low_freq_factor = m.rope_low_freq_factor,
                 .high_freq_factor = m.rope_high_freq_factor,
                 .original_positions = m.rope_original_positions};
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
    const auto* const* last = open.tensors + open.tensor_count;
    const auto* const* at = std::find_if(
        open.tensors, last, [&](const mkbench_tensor* one) { return t.name == one->name; });
    if (at == last) throw Error(ErrorKind::kBadInput, "open: found no tensor " + t.name);
    const mkbench_tensor found = mkbench_own(*at);
    if (found.dtype != MKBENCH_BF16)
      throw Error(ErrorKind::kBadInput, "open: wanted bf16 for tensor " + t.name);
    const auto* data = static_cast<const Bf16*>(found.data);
    if (kDevice == MKBENCH_DEVICE_CUDA) {
      std::vector<Bf16>& mine = memory->emplace_back(found.bytes / sizeof(Bf16));
      copy(mine.data(), found.data, found.bytes);
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
  mkbench::Snapshot slots[MKBENCH_SLOTS];
  mkbench_span* spans = nullptr;  // set while timelines are recorded
  size_t room = 0;
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

// The names of phases by number, the same for all engines: phase_name() is told none. A recorded
// timeline knows them.
std::vector<std::string> phase_names;
std::once_flag phases_named;
constexpr int kKinds = static_cast<int>(SpanKind::kCount);

void name_phases(const Timeline& timeline) {
  for (const std::string& role : timeline.roles) {
    for (const std::string& phase : timeline.phases) {
      for (int kind = 0; kind < kKinds; ++kind) {
        const std::string name = role == "block" ? phase : role + "/" + phase;
        const std::string suffix = ": " + std::string(span_kind_name(static_cast<SpanKind>(kind)));
        phase_names.push_back(kind == 0 ? name : name + suffix);
      }
    }
  }
}

// Hands over the spans of the last decode(), as many as there is room for.
void give_spans(const mkbench_engine& e) {
  const Timeline timeline = e.engine->timeline();
  std::call_once(phases_named, [&] { name_phases(timeline); });
  const auto phases = static_cast<int>(timeline.phases.size());
  std::vector<mkbench_span> spans(std::min(e.room, timeline.spans.size()));
  for (size_t i = 0; i < spans.size(); ++i) {
    const TimelineSpan& s = timeline.spans[i];
    spans[i] = {s.block, (s.role * phases + s.phase) * kKinds + s.kind,
                static_cast<uint64_t>(s.t0_ns), static_cast<uint64_t>(s.t1_ns)};
  }
  if (!spans.empty()) copy(e.spans, spans.data(), spans.size() * sizeof(mkbench_span));
}

int32_t open_engine(const mkbench_open* args, mkbench_engine** engine) {
  const auto work = [&] {
    auto made = std::make_unique<mkbench_engine>();
    const mkbench_open open = mkbench_own(args);
    if (open.model == nullptr) throw Error(ErrorKind::kBadInput, MKBENCH_NO_RECORD);
    made->engine = make(open);
    made->vocab = static_cast<size_t>(open.model->vocab);
    made->hidden = static_cast<size_t>(open.model->hidden);
    *engine = made.release();
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
int32_t decode(mkbench_engine* e, const mkbench_decode* args) {
  return guarded(e->error, [&] {
    const mkbench_decode d = mkbench_own(args);
    const auto steps = static_cast<size_t>(d.n);
    if (d.forced != nullptr) e->engine->set_pending(d.forced[0]);
    if (d.late_id >= 0) e->engine->set_pending(d.late_id);
    VectorSteps wanted;
    if (d.vectors != nullptr) {
      e->vectors.resize(steps * e->hidden);
      copy(e->vectors.data(), d.vectors, e->vectors.size() * sizeof(Bf16));
      wanted.in = e->vectors.data();
    }
    if (d.logits != nullptr) e->logits.resize(steps * e->vocab);
    if (d.hidden != nullptr) e->normed.resize(steps * e->hidden);
    wanted.logits_out = d.logits != nullptr ? e->logits.data() : nullptr;
    wanted.hidden_out = d.hidden != nullptr ? e->normed.data() : nullptr;
    const bool plain = d.vectors == nullptr && d.hidden == nullptr;
    const std::vector<int32_t> emitted = plain ? e->engine->decode(d.n, d.forced, wanted.logits_out)
                                               : e->engine->decode_vectors(d.n, wanted);
    copy(d.ids, emitted.data(), emitted.size() * sizeof(int32_t));
    if (d.logits != nullptr) copy(d.logits, wanted.logits_out, e->logits.size() * sizeof(float));
    if (d.hidden != nullptr) copy(d.hidden, wanted.hidden_out, e->normed.size() * sizeof(float));
    if (e->spans != nullptr) give_spans(*e);
  });
}
const char* last_error(mkbench_engine* e) { return (e != nullptr ? e->error : open_error).c_str(); }
const volatile int32_t* progress(mkbench_engine* e) {
  return EXPORTED_MAKER.position_word(*e->engine);
}
int32_t rewind_engine(mkbench_engine* e, int32_t position) {
  return guarded(e->error, [&] { e->engine->rewind(position); });
}
int32_t save(mkbench_engine* e, int32_t slot, uint64_t* checksum) {
  return guarded(e->error, [&] {
    e->slots[slot] = e->engine->save();
    *checksum = e->slots[slot].kv_checksum;
  });
}
int32_t restore(mkbench_engine* e, int32_t slot) {
  return guarded(e->error, [&] { e->engine->restore(e->slots[slot]); });
}
int32_t set_timeline(mkbench_engine* e, mkbench_span* spans, int32_t room) {
  return guarded(e->error, [&] {
    if (!e->engine->set_timeline(spans != nullptr))
      throw Error(ErrorKind::kRuntime,
                  "set_timeline: no kernel for this model's layer shape records a timeline");
    e->spans = spans;
    e->room = static_cast<size_t>(room);
  });
}
const char* phase_name(int32_t phase) {
  const bool known = phase >= 0 && phase < static_cast<int64_t>(phase_names.size());
  return known ? phase_names[static_cast<size_t>(phase)].c_str() : nullptr;
}
int32_t show(mkbench_engine* e, const mkbench_show* args) {
  bool shown = false;
  const int32_t status = guarded(e->error, [&] {
    const mkbench_show s = mkbench_own(args);
    std::optional<std::vector<float>> values;
    if (s.what == MKBENCH_SHOW_HIDDEN) values = e->engine->hidden(s.layer);
    if (s.what == MKBENCH_SHOW_KV_ROW) values = e->engine->kv_row(s.layer, s.position);
    if (values) std::copy(values->begin(), values->end(), s.out);
    shown = values.has_value();
  });
  return status == MKBENCH_OK && !shown ? MKBENCH_NOT_SHOWN : status;
}

}  // namespace

const mkbench_engine_abi* mkbench_engine_table(void) {
  static const mkbench_engine_abi table = [] {
    const EngineCapabilities can = EXPORTED_MAKER.can();
    const auto bit = [](bool has, uint32_t bits) { return has ? bits : 0U; };
    mkbench_engine_abi t{};
    t.size = sizeof t;
    t.version = MKBENCH_ENGINE_ABI_VERSION;
    t.name = EXPORTED_MAKER.name.data();
    t.devices = kDevice;
    t.can = bit(can.logits, MKBENCH_CAN_LOGITS) | bit(can.forced, MKBENCH_CAN_FORCED) |
            bit(can.late_id, MKBENCH_CAN_LATE_ID) |
            bit(can.vectors, MKBENCH_CAN_VECTORS | MKBENCH_CAN_HIDDEN) |
            bit(!can.deterministic, MKBENCH_NOT_DETERMINISTIC) |
            bit(can.one_launch, MKBENCH_ONE_LAUNCH);
    t.open = open_engine;
    t.close = close_engine;
    t.reset = reset;
    t.prefill = prefill;
    t.decode = decode;
    t.last_error = last_error;
    t.precision = MKBENCH_PRECISION_FP32_ACCUMULATE;
    if (EXPORTED_MAKER.position_word != nullptr) t.progress = progress;
    if (can.rewind) t.rewind = rewind_engine;
    if (can.snapshots) t.save = save, t.restore = restore;
    if (EXPORTED_MAKER.timelines) t.set_timeline = set_timeline, t.phase_name = phase_name;
    if (EXPORTED_MAKER.shows) t.show = show;
    return t;
  }();
  return &table;
}
