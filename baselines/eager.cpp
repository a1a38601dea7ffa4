#include <ATen/ATen.h>
#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/CUDAEvent.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/InferenceMode.h>
#include <c10/cuda/CUDACachingAllocator.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "baselines/bug_search.h"
#include "baselines/compiled_package.h"
#include "baselines/eager_model.h"
#include "baselines/static_step.h"
#include "baselines/torch_errors.h"
#include "baselines/torch_settings.h"
#include "references/base/error.h"
#include "references/model/family.h"

namespace mkbench {
namespace {

using at::Tensor;

const char* name_of(const EagerOptions& options) {
  return options.compiled ? "compiled" : options.graph ? "graph" : "eager";
}

[[noreturn]] void refuse(const EagerOptions& options, const std::string& message) {
  throw Error(ErrorKind::kBadInput, name_of(options) + (": " + message));
}

std::vector<float> to_host(const Tensor& x) {
  const Tensor host = x.to(at::kFloat).cpu().contiguous();
  const float* data = host.const_data_ptr<float>();
  return {data, data + host.numel()};
}

// The package of `compiled` for a model and the device of `options`; built if the cache has none.
// Throws Error(kNotBuilt).
std::filesystem::path package_for(const ModelConfig& config, const EagerOptions& options) {
  if (!config.shape.has_qwen3_layers())
    refuse(options, "scripts/compile_step.py has no code for layers unlike Qwen3's (" +
                        unlike_qwen3(config.shape) + ")");
  const TorchFacts facts = torch_facts();
  PackageKey key{.shape = config.shape,
                 .eps = config.rms_norm_eps,
                 .cuda = options.cuda,
                 .gpu = options.gpu,
                 .architecture = cpu_architecture(),
                 .torch_version = facts.version,
                 .torch_cuda_version = facts.cuda_version};
  if (options.cuda) {
    const auto* card = at::cuda::getDeviceProperties(static_cast<c10::DeviceIndex>(options.gpu));
    key.architecture = "sm_" + std::to_string(card->major) + std::to_string(card->minor);
  }
  return compiled_package(key);
}

// The greedy ids of a decode and their logits, on the device: [n] each.
struct Decoded {
  Tensor ids, best;
};

class EagerEngine final : public Engine {
 public:
  EagerEngine(const ModelWeights& weights, const EagerOptions& options);
  ~EagerEngine() override;

  EngineCapabilities capabilities() const override;
  void reset() override;
  void poison() override;
  void prefill(std::span<const int32_t> ids) override;
  std::vector<int32_t> decode(int n, const int32_t* forced, float* logits_out) override;
  std::vector<int32_t> decode_vectors(int n, const VectorSteps& steps) override;
  void set_pending(int32_t id) override;
  Snapshot save() override;
  void restore(const Snapshot& s) override;
  int position() const override { return model_->position(); }
  int64_t launch_count() const override { return decode_calls_; }
  DecodeTimes last_times() const override { return times_; }
  Progress progress() const override;
  std::optional<std::vector<float>> hidden(int layer) override;
  std::optional<std::vector<float>> kv_row(int layer, int row) override;
  std::optional<BugFits> explain(const BugQuestion& question) override;

 private:
  // Runs `work` on this engine's device without autograd bookkeeping.
  template <typename Work>
  auto on_device(Work&& work) -> decltype(work()) {
    return translate_errors(name_of(options_), [&] {
      const c10::InferenceMode inference;
      const c10::DeviceGuard guard(device_);
      return work();
    });
  }

  void check_id(int32_t id, const std::string& what) const;
  Tensor upload_ids(const std::vector<int64_t>& ids) const;
  std::vector<int32_t> collect(const Tensor& ids, const Tensor& best) const;
  void synchronize() const;
  std::vector<int32_t> run(int n, const int32_t* forced, const VectorSteps& steps);
  std::vector<int64_t> given_ids(int n, const int32_t* forced, const VectorSteps& steps) const;
  Tensor upload_vectors(int n, const Bf16* vectors) const;
  Decoded decode_eagerly(int n, const Tensor& inputs, bool forced, const VectorSteps& steps);
  Decoded decode_statically(int n, const Tensor& inputs, bool forced, float* logits_out);

  EagerOptions options_;
  CpuThreads threads_;
  const ModelConfig config_;
  const ModelShape& shape_ = config_.shape;
  at::Device device_;
  at::TensorOptions ids_;        // int64 on the device
  at::ScalarType dtype_;         // type of weights and KV cache
  at::ScalarType logits_dtype_;  // type of the logits that the argmax reads
  std::unique_ptr<EagerModel> model_;
  std::unique_ptr<StaticStep> static_step_;  // null unless options_.static_steps()

  int32_t pending_ = -1;
  int64_t decode_calls_ = 0;
  DecodeTimes times_;
  std::atomic<const char*> activity_{""};  // the phase that progress() gives
};

EagerEngine::EagerEngine(const ModelWeights& weights, const EagerOptions& options)
    : options_(options),
      threads_(options.threads),
      config_(weights.config),
      device_(options.cuda ? at::Device(at::kCUDA, static_cast<at::DeviceIndex>(options.gpu))
                           : at::Device(at::kCPU)),
      ids_(at::TensorOptions().dtype(at::kLong).device(device_)),
      dtype_(options.fp32 ? at::kFloat : at::kBFloat16),
      logits_dtype_(options.head_fp32 ? at::kFloat : dtype_) {
  on_device([&] {
    // The package comes first, because compiling it also needs memory on the card.
    const std::filesystem::path package =
        options.compiled ? package_for(weights.config, options) : "";
    model_ = std::make_unique<EagerModel>(weights, options);
    if (options.static_steps())
      static_step_ = std::make_unique<StaticStep>(*model_, options.max_context, package);
    synchronize();
  });
}

EagerEngine::~EagerEngine() {
  static_step_.reset();
  model_.reset();
  if (!device_.is_cuda()) return;
  // libtorch's allocator would keep the memory, and the next engine may not use libtorch.
  try {
    c10::cuda::CUDACachingAllocator::emptyCache();
  } catch (const std::exception&) {  // the call that broke the context has reported the error
  }
}

void EagerEngine::check_id(int32_t id, const std::string& what) const {
  if (id >= 0 && id < shape_.vocab) return;
  refuse(options_,
         what + " is " + std::to_string(id) + ", wanted 0 to " + std::to_string(shape_.vocab - 1));
}

Tensor EagerEngine::upload_ids(const std::vector<int64_t>& ids) const {
  return at::tensor(ids, at::kLong).to(device_);
}

void EagerEngine::synchronize() const {
  if (device_.is_cuda()) at::cuda::getCurrentCUDAStream(device_.index()).synchronize();
}

EngineCapabilities EagerEngine::capabilities() const {
  EngineCapabilities c;
  c.name = name_of(options_);
  c.poison = !options_.static_steps();  // static steps read masked rows, which must not be NaN
  c.device = "cpu";
  if (device_.is_cuda()) {
    c.device = "cuda:" + std::to_string(options_.gpu) + " " +
               at::cuda::getDeviceProperties(device_.index())->name;
  }
  c.max_context = options_.max_context;
  c.vectors = !options_.static_steps();  // a static step takes an id only
  return c;
}

void EagerEngine::reset() {
  model_->set_position(0);
  model_->hidden_states.clear();
  pending_ = -1;
}

void EagerEngine::poison() {
  on_device([&] {
    const double unwritten = unwritten_row(options_);
    const int64_t first = position(), unused = options_.max_context - first;
    for (const LayerTensors& layer : model_->layers) {
      layer.k_cache.narrow(2, first, unused).fill_(unwritten);
      layer.v_cache.narrow(2, first, unused).fill_(unwritten);
    }
    // Hidden states are the only output that outlives a call; the next step makes new ones.
    model_->hidden_states.clear();
    synchronize();
  });
}

void EagerEngine::prefill(std::span<const int32_t> ids) {
  if (ids.empty()) refuse(options_, "prefill: no ids");
  for (size_t i = 0; i < ids.size(); ++i) check_id(ids[i], "prefill: id " + std::to_string(i));
  std::vector<int64_t> input;
  if (pending_ >= 0) input.push_back(pending_);
  input.insert(input.end(), ids.begin(), ids.end() - 1);
  const int64_t rows = static_cast<int64_t>(input.size());
  if (position() + rows > options_.max_context) {
    refuse(options_, "prefill: " + std::to_string(position()) + " + " + std::to_string(rows) +
                         " positions, the KV cache holds " + std::to_string(options_.max_context));
  }
  activity_ = "prefill";
  on_device([&] {
    if (rows > 0) {
      const Tensor all = upload_ids(input).unsqueeze(0);
      for (int64_t at_row = 0; at_row < rows; at_row += kPrefillChunkRows) {
        const int64_t chunk = std::min<int64_t>(kPrefillChunkRows, rows - at_row);
        model_->forward(all.narrow(1, at_row, chunk), /*keep_hidden=*/false);
      }
    }
    synchronize();
  });
  pending_ = ids.back();
  activity_ = "";
}

// Copies the ids to the host, with -1 for a step whose largest logit is NaN: libtorch gives such a
// step an ordinary index.
std::vector<int32_t> EagerEngine::collect(const Tensor& ids, const Tensor& best) const {
  const Tensor checked = at::where(at::isnan(best), at::full({}, -1, ids_), ids);
  const Tensor host = checked.to(at::kInt).to(at::kCPU);
  return {host.const_data_ptr<int32_t>(), host.const_data_ptr<int32_t>() + host.numel()};
}

// Copies `row` to row `step` of `out`, fp32 [n, width] on the host; does nothing if `out` is null.
void keep_row(const Tensor& row, int step, float* out) {
  if (out == nullptr) return;
  float* const to = out + static_cast<int64_t>(step) * row.numel();
  at::from_blob(to, {row.numel()}, at::kFloat).copy_(row.view({row.numel()}));
}

// `inputs`: ids [n], or [1] without forced ids; if steps.in is set, vectors [1, n, hidden].
Decoded EagerEngine::decode_eagerly(int n, const Tensor& inputs, bool forced,
                                    const VectorSteps& steps) {
  Tensor slots = at::full({n}, -1, ids_);
  Tensor best = at::full({n}, std::numeric_limits<double>::quiet_NaN(), ids_.dtype(logits_dtype_));
  const bool by_vector = steps.in != nullptr;
  // The truth takes forced steps in one pass, because scoring 128 ids one by one costs 0.15 s on a
  // CPU. Regrouped fp32 sums change it far less than the errors that are measured against it.
  const bool one_pass = options_.fp32 && forced && !by_vector;
  const Tensor all =
      one_pass ? model_->forward(inputs.unsqueeze(0), /*keep_hidden=*/true) : Tensor();
  const auto step_of = [&](int t) {
    if (one_pass) return all.narrow(1, t, 1);
    if (by_vector) return model_->forward_vectors(inputs.narrow(1, t, 1), /*keep_hidden=*/true);
    const Tensor id = t == 0 || forced ? inputs.narrow(0, t, 1) : slots.narrow(0, t - 1, 1);
    return model_->forward(id.unsqueeze(0), /*keep_hidden=*/true);
  };
  for (int t = 0; t < n; ++t) {
    const Tensor hidden = step_of(t);
    const Tensor logits = model_->head(hidden);
    // max() over a dimension promises the first index among equals. The id stays on the device.
    Tensor value = best.narrow(0, t, 1), index = slots.narrow(0, t, 1);
    at::max_out(value, index, logits, 0, /*keepdim=*/true);
    keep_row(logits, t, steps.logits_out);
    if (steps.hidden_out != nullptr) keep_row(model_->normed(hidden), t, steps.hidden_out);
  }
  return {slots, best};
}

Decoded EagerEngine::decode_statically(int n, const Tensor& inputs, bool forced,
                                       float* logits_out) {
  const int first = position();
  static_step_->set_position(first);
  for (int t = 0; t < n; ++t) {
    if (t == 0 || forced) static_step_->set_id(inputs.narrow(0, t, 1));
    static_step_->run();
    keep_row(static_step_->logits(), t, logits_out);
    model_->set_position(first + t + 1);
  }
  model_->hidden_states.clear();
  for (const Tensor& state : static_step_->hidden())
    model_->hidden_states.push_back(state.unsqueeze(0));
  return {static_step_->ids().narrow(0, first, n), static_step_->best().narrow(0, first, n)};
}

// The input ids, checked; empty if the inputs are vectors.
std::vector<int64_t> EagerEngine::given_ids(int n, const int32_t* forced,
                                            const VectorSteps& steps) const {
  if (steps.in != nullptr) return {};
  if (pending_ < 0)
    refuse(options_, "decode: no pending id, call prefill() or set_pending() first");
  std::vector<int64_t> given = {pending_};
  for (int t = 1; forced != nullptr && t < n; ++t) {
    check_id(forced[t], "decode: forced id " + std::to_string(t));
    given.push_back(forced[t]);
  }
  return given;
}

// [1, n, hidden] in the model's dtype.
Tensor EagerEngine::upload_vectors(int n, const Bf16* vectors) const {
  const Tensor host =
      at::from_blob(const_cast<Bf16*>(vectors), {1, n, shape_.hidden}, at::kBFloat16);
  return host.to(device_).to(dtype_);
}

std::vector<int32_t> EagerEngine::decode(int n, const int32_t* forced, float* logits_out) {
  return run(n, forced, {.logits_out = logits_out});
}

std::vector<int32_t> EagerEngine::decode_vectors(int n, const VectorSteps& steps) {
  if (options_.static_steps()) return Engine::decode_vectors(n, steps);
  return run(n, nullptr, steps);
}

std::vector<int32_t> EagerEngine::run(int n, const int32_t* forced, const VectorSteps& steps) {
  if (n < 1) refuse(options_, "decode: n is " + std::to_string(n) + ", wanted at least 1");
  if (n > options_.max_context - position()) {
    refuse(options_, "decode: " + std::to_string(position()) + " + " + std::to_string(n) +
                         " positions, the KV cache holds " + std::to_string(options_.max_context));
  }
  const std::vector<int64_t> given = given_ids(n, forced, steps);
  check_vector_steps(name_of(options_) + std::string(": decode"), n, steps, shape_.hidden,
                     position());

  activity_ = "decode";
  std::vector<int32_t> result = on_device([&] {
    synchronize();
    const auto start = std::chrono::steady_clock::now();
    at::cuda::CUDAEvent first(cudaEventDefault), last(cudaEventDefault);
    if (device_.is_cuda()) first.record();

    const Tensor inputs = steps.in != nullptr ? upload_vectors(n, steps.in) : upload_ids(given);
    const Decoded decoded = static_step_
                                ? decode_statically(n, inputs, forced != nullptr, steps.logits_out)
                                : decode_eagerly(n, inputs, forced != nullptr, steps);

    if (device_.is_cuda()) last.record();
    std::vector<int32_t> ids = collect(decoded.ids, decoded.best);
    synchronize();
    times_ = {};
    times_.host_ms =
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
    if (device_.is_cuda()) times_.event_ms = first.elapsed_time(last);
    return ids;
  });
  activity_ = "";
  ++decode_calls_;
  pending_ = result.back();
  return result;
}

void EagerEngine::set_pending(int32_t id) {
  check_id(id, "set_pending: id");
  pending_ = id;
}

Snapshot EagerEngine::save() {
  return {position(), pending_, on_device([&] { return model_->kv_checksum(position()); })};
}

void EagerEngine::restore(const Snapshot& s) {
  if (s.position < 0 || s.position > position()) {
    refuse(options_, "restore: position " + std::to_string(s.position) + ", the sequence holds " +
                         std::to_string(position()));
  }
  if (s.pending != -1) check_id(s.pending, "restore: pending id");
  if (on_device([&] { return model_->kv_checksum(s.position); }) != s.kv_checksum) {
    throw Error(ErrorKind::kIntegrity, name_of(options_) + std::string(": restore: KV rows 0 to ") +
                                           std::to_string(s.position - 1) +
                                           " were modified since save()");
  }
  model_->set_position(s.position);
  pending_ = s.pending;
  poison();
}

Progress EagerEngine::progress() const {
  return {model_->position(), model_->layer(), activity_.load()};
}

std::optional<std::vector<float>> EagerEngine::hidden(int layer) {
  if (layer < 0 || layer >= shape_.layers) {
    refuse(options_, "hidden: layer is " + std::to_string(layer) + ", wanted 0 to " +
                         std::to_string(shape_.layers - 1));
  }
  const std::vector<Tensor>& states = model_->hidden_states;
  if (states.empty()) return std::nullopt;
  return on_device([&] {  // only the last row: the truth may have run several rows at once
    return to_host(states[static_cast<size_t>(layer)].slice(1, -1));
  });
}

std::optional<std::vector<float>> EagerEngine::kv_row(int layer, int row) {
  if (layer < 0 || layer >= shape_.layers || row < 0 || row >= position()) {
    refuse(options_, "kv_row: layer " + std::to_string(layer) + ", position " +
                         std::to_string(row) + ", wanted layers below " +
                         std::to_string(shape_.layers) + " and positions below " +
                         std::to_string(position()));
  }
  return on_device([&] {
    const LayerTensors& of = model_->layers[static_cast<size_t>(layer)];
    return to_host(
        at::cat({of.k_cache.select(2, row).flatten(), of.v_cache.select(2, row).flatten()}));
  });
}

std::optional<BugFits> EagerEngine::explain(const BugQuestion& question) {
  if (!options_.fp32) return std::nullopt;
  return on_device([&] { return search_bugs(*model_, config_, question); });
}

}  // namespace

std::unique_ptr<Engine> make_eager(const ModelWeights& weights, const EagerOptions& options) {
  const ModelConfig& config = weights.config;
  if (options.max_context < 1 || options.max_context > config.max_positions) {
    refuse(options, "max_context is " + std::to_string(options.max_context) + ", wanted 1 to " +
                        std::to_string(config.max_positions) + " (max_position_embeddings)");
  }
  if (config.shape.head_dim % 4 != 0) {
    refuse(options,
           "head_dim is " + std::to_string(config.shape.head_dim) + ", wanted a multiple of 4");
  }
  pin_torch_settings();
  if (options.cuda) {
    const int found = translate_errors(name_of(options),
                                       [] { return static_cast<int>(at::cuda::device_count()); });
    if (options.gpu < 0 || options.gpu >= found) {
      throw Error(ErrorKind::kUnsupportedDevice,
                  name_of(options) + std::string(": GPU ") + std::to_string(options.gpu) +
                      " asked for, libtorch finds " + std::to_string(found) +
                      "; `mkbench doctor` says why; --device cpu needs no GPU");
    }
  }
  return std::make_unique<EagerEngine>(weights, options);
}

}  // namespace mkbench
