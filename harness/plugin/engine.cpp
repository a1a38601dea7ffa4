#include "harness/plugin/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <optional>
#include <vector>

#include "harness/engines/plugin_file.h"
#include "harness/plugin/library.h"
#include "harness/plugin/memory.h"
#include "kernels/cuda_event.h"
#include "references/base/error.h"
#include "references/engine_maker.h"

namespace mkbench {
namespace {

// CUDA events before and after the device work of a call.
struct EventPair {
  Event start, stop;
};

ErrorKind kind_of_open(int32_t status) {
  if (status == MKBENCH_UNFIT_MODEL) return ErrorKind::kBadInput;
  if (status == MKBENCH_UNFIT_ENV) return ErrorKind::kEnvUnfit;
  return ErrorKind::kRuntime;
}

// A plugin's error text, on one line of bounded length.
std::string one_line(const char* text) {
  constexpr size_t kLongest = 300;
  std::string line(text, strnlen(text, kLongest));
  std::replace_if(
      line.begin(), line.end(), [](unsigned char c) { return c < ' '; }, ' ');
  return line;
}

// Makes the device current and returns its name. Throws where the plugin has no code for the
// device.
std::string select_device(const mkbench_engine_abi& abi, const PluginOptions& options,
                          const std::string& who) {
  const uint32_t wanted = options.cuda ? MKBENCH_DEVICE_CUDA : MKBENCH_DEVICE_CPU;
  if ((abi.devices & wanted) == 0) {
    const char* found = (abi.devices & MKBENCH_DEVICE_CUDA) != 0  ? "cuda"
                        : (abi.devices & MKBENCH_DEVICE_CPU) != 0 ? "cpu"
                                                                  : "none";
    throw Error(ErrorKind::kUnsupportedDevice,
                fmt::format("{}: devices: found {}, wanted {}, which this run is on", who, found,
                            options.cuda ? "cuda" : "cpu"));
  }
  if (!options.cuda) return "cpu";
  MKBENCH_CUDA(cudaSetDevice(options.gpu));
  cudaDeviceProp properties{};
  MKBENCH_CUDA(cudaGetDeviceProperties(&properties, options.gpu));
  return fmt::format("cuda:{} {}", options.gpu, properties.name);
}

class PluginEngine : public Engine {
 public:
  PluginEngine(const ModelWeights& weights, const PluginOptions& options)
      : options_(options),
        who_("engine " + options.path),
        abi_(load_plugin(options.path)),
        shape_(weights.config.shape),
        device_(select_device(abi_, options_, who_)),
        weights_(who_, weights, options.cuda),
        ids_(who_ + ": ids of decode()", options.cuda, 1),
        logits_(who_ + ": logits of decode()", options.cuda,
                sizeof(float) * static_cast<size_t>(shape_.vocab)) {
    model_ = {.hidden = shape_.hidden,
              .intermediate = shape_.intermediate,
              .layers = shape_.layers,
              .heads = shape_.heads,
              .kv_heads = shape_.kv_heads,
              .head_dim = shape_.head_dim,
              .vocab = shape_.vocab,
              .tied = weights.config.tie_word_embeddings ? 1 : 0,
              .rope_theta = weights.config.rope_theta,
              .rms_norm_eps = weights.config.rms_norm_eps};
    if (options_.cuda) events_.emplace();
    open();
  }

  ~PluginEngine() override {
    if (engine_ != nullptr) abi_.close(engine_);
  }
  PluginEngine(const PluginEngine&) = delete;
  PluginEngine& operator=(const PluginEngine&) = delete;

  EngineCapabilities capabilities() const override {
    return {.name = fmt::format("{}@{}", abi_.name,
                                std::filesystem::path(options_.path).filename().string()),
            .device = device_,
            .max_context = options_.max_context,
            .logits = (abi_.can & MKBENCH_CAN_LOGITS) != 0,
            .one_launch = false,
            .forced = true,  // see replay()
            .snapshots = false,
            .poison = false,
            .counted = false};
  }

  void reset() override {
    audit();
    restart();
    pending_ = -1;
  }

  // run() poisons the outputs before every call; mkbench cannot reach the plugin's own buffers.
  void poison() override {}

  void prefill(std::span<const int32_t> ids) override {
    if (ids.empty()) throw Error(ErrorKind::kBadInput, who_ + ": prefill: no ids");
    for (const int32_t id : ids) check_id(id);
    std::vector<int32_t> all = consumed_;
    if (pending_ >= 0) all.push_back(pending_);
    all.insert(all.end(), ids.begin(), ids.end());
    check_room(all.size() - 1);
    feed(all);
  }

  std::vector<int32_t> decode(int n, const int32_t* forced, float* logits_out) override {
    check_decode(n, forced, logits_out);
    times_ = {};
    if (forced == nullptr && pending_ == plugin_pending_) return run(n, nullptr, logits_out);
    if (!can_force()) return replay(n, forced, logits_out);
    std::vector<int32_t> inputs{pending_};
    if (forced != nullptr) {
      inputs.insert(inputs.end(), forced + 1, forced + n);
      return run(n, inputs.data(), logits_out);
    }
    // The first id is forced; the engine chooses all later ones.
    std::vector<int32_t> ids = run(1, inputs.data(), logits_out);
    if (n > 1 && !ids.empty()) {
      float* rest = logits_out == nullptr ? nullptr : logits_out + shape_.vocab;
      const std::vector<int32_t> more = run(n - 1, nullptr, rest);
      ids.insert(ids.end(), more.begin(), more.end());
    }
    return ids;
  }

  void set_pending(int32_t id) override {
    check_id(id);
    pending_ = id;
  }

  Snapshot save() override { throw Error(ErrorKind::kRuntime, who_ + ": it has no snapshots"); }
  void restore(const Snapshot&) override {
    throw Error(ErrorKind::kRuntime, who_ + ": it has no snapshots");
  }

  int position() const override { return position_; }
  int64_t launch_count() const override { return decodes_; }
  DecodeTimes last_times() const override { return times_; }
  Progress progress() const override {
    return {progress_ != nullptr ? *progress_ : position_.load(), -1, {}};
  }
  void audit() override { weights_.check(); }

 private:
  bool can_force() const { return (abi_.can & MKBENCH_CAN_FORCED) != 0; }

  void open() {
    const mkbench_open arguments{.model = &model_,
                                 .tensors = weights_.tensors().data(),
                                 .tensor_count = static_cast<uint32_t>(weights_.tensors().size()),
                                 .device = options_.cuda ? MKBENCH_DEVICE_CUDA : MKBENCH_DEVICE_CPU,
                                 .gpu = options_.cuda ? options_.gpu : -1,
                                 .max_context = options_.max_context};
    const int32_t status = abi_.open(&arguments, &engine_);
    if (status != MKBENCH_OK) {
      engine_ = nullptr;
      throw Error(kind_of_open(status), said("open", status));
    }
    if (engine_ == nullptr)
      throw Error(ErrorKind::kRuntime,
                  who_ + ": open: found no engine, wanted one with MKBENCH_OK");
    finish_device();
    if (abi_.progress != nullptr) progress_ = abi_.progress(engine_);
  }

  // "engine x.so: decode failed (1): <the plugin's error text>"
  std::string said(const char* function, int32_t status) const {
    const char* text = abi_.last_error != nullptr ? abi_.last_error(engine_) : nullptr;
    return fmt::format("{}: {} failed ({}): {}", who_, function, status,
                       text != nullptr ? one_line(text) : "it does not say why");
  }

  // Waits for the device work of a call, then throws if that work or the call itself has failed.
  void end_call(const char* function, int32_t status) {
    finish_device();
    if (status != MKBENCH_OK) throw Error(ErrorKind::kRuntime, said(function, status));
  }

  void finish_device() const {
    if (options_.cuda) MKBENCH_CUDA(cudaDeviceSynchronize());
  }

  void restart() {
    end_call("reset", abi_.reset(engine_));
    consumed_.clear();
    position_ = 0;
    plugin_pending_ = -1;
    clean_ = true;
  }

  // Prefills the whole sequence from position 0; the last id of `all` becomes pending.
  void feed(const std::vector<int32_t>& all) {
    if (!clean_) restart();
    clean_ = false;
    end_call("prefill", abi_.prefill(engine_, all.data(), static_cast<int32_t>(all.size())));
    consumed_.assign(all.begin(), all.end() - 1);
    position_ = static_cast<int>(consumed_.size());
    pending_ = plugin_pending_ = all.back();
  }

  // Decodes with an engine that takes no forced ids: wherever the input differs from the engine's
  // own choice, the sequence so far is prefilled again with the forced id at its end.
  std::vector<int32_t> replay(int n, const int32_t* forced, float* logits_out) {
    std::vector<int32_t> ids;
    for (int t = 0; t < n; ++t) {
      if (t > 0 && forced != nullptr) pending_ = forced[t];
      if (pending_ != plugin_pending_) {
        std::vector<int32_t> all = consumed_;
        all.push_back(pending_);
        feed(all);
      }
      float* row = logits_out == nullptr ? nullptr : logits_out + int64_t{t} * shape_.vocab;
      const std::vector<int32_t> id = run(1, nullptr, row);
      if (id.empty()) break;
      ids.push_back(id.front());
    }
    return ids;
  }

  // One call of decode() into poisoned and guarded buffers. Trailing ids that are still -1 are cut
  // off.
  std::vector<int32_t> run(int n, const int32_t* inputs, float* logits_out) {
    const size_t logits_bytes =
        sizeof(float) * static_cast<size_t>(n) * static_cast<size_t>(shape_.vocab);
    auto* logits =
        logits_out != nullptr ? static_cast<float*>(logits_.prepare(logits_bytes)) : nullptr;
    if (events_) events_->start.record();
    auto* ids = static_cast<int32_t*>(ids_.prepare(sizeof(int32_t) * static_cast<size_t>(n)));
    ++decodes_;
    const int32_t status = abi_.decode(engine_, n, inputs, ids, logits);
    finish_device();
    std::vector<int32_t> emitted(static_cast<size_t>(n));
    ids_.collect(emitted.data());
    if (events_) {
      events_->stop.record();
      finish_device();
      times_.event_ms += events_->stop.ms_since(events_->start);
    }
    if (logits_out != nullptr) logits_.collect(logits_out);
    if (status != MKBENCH_OK) throw Error(ErrorKind::kRuntime, said("decode", status));
    for (int t = 0; t < n; ++t) {
      consumed_.push_back(inputs != nullptr ? inputs[t]
                          : t == 0          ? plugin_pending_
                                            : emitted[static_cast<size_t>(t) - 1]);
    }
    position_ = static_cast<int>(consumed_.size());
    while (!emitted.empty() && emitted.back() == -1) emitted.pop_back();
    if (!emitted.empty()) pending_ = plugin_pending_ = emitted.back();
    return emitted;
  }

  void check_decode(int n, const int32_t* forced, const float* logits_out) const {
    if (n < 1)
      throw Error(ErrorKind::kBadInput,
                  fmt::format("{}: decode: {} steps, wanted 1 or more", who_, n));
    if (pending_ < 0)
      throw Error(ErrorKind::kBadInput, who_ + ": decode: no pending id, call prefill first");
    if (logits_out != nullptr && (abi_.can & MKBENCH_CAN_LOGITS) == 0)
      throw Error(ErrorKind::kRuntime,
                  who_ + ": decode: it has no logits, and they were asked for");
    for (int t = 1; forced != nullptr && t < n; ++t) check_id(forced[t]);
    check_room(consumed_.size() + static_cast<size_t>(n));
  }

  void check_id(int32_t id) const {
    if (id >= 0 && id < shape_.vocab) return;
    throw Error(ErrorKind::kBadInput,
                fmt::format("{}: token id {} is not in [0, {})", who_, id, shape_.vocab));
  }

  void check_room(size_t positions) const {
    if (positions <= static_cast<size_t>(options_.max_context)) return;
    throw Error(ErrorKind::kBadInput, fmt::format("{}: context: {} positions needed, {} there",
                                                  who_, positions, options_.max_context));
  }

  const PluginOptions options_;
  const std::string who_;
  const mkbench_engine_abi& abi_;
  const ModelShape shape_;
  const std::string device_;
  PluginWeights weights_;
  GuardedBuffer ids_, logits_;
  mkbench_model model_{};
  std::optional<EventPair> events_;
  mkbench_engine* engine_ = nullptr;
  const volatile int32_t* progress_ = nullptr;

  std::vector<int32_t> consumed_;  // ids whose KV rows are written
  std::atomic<int> position_ = 0;  // consumed_.size(), for progress()
  int32_t pending_ = -1;           // the next input by order of the harness
  int32_t plugin_pending_ = -1;    // the next input that the plugin assumes
  bool clean_ = true;              // nothing was prefilled since open() or reset()
  int64_t decodes_ = 0;
  DecodeTimes times_;
};

}  // namespace

std::unique_ptr<Engine> make_plugin(const ModelWeights& weights, const PluginOptions& options) {
  return std::make_unique<PluginEngine>(weights, options);
}

namespace {

std::unique_ptr<Engine> make(const ModelWeights& weights, const EngineRequest& request) {
  return make_plugin(weights, {.path = request.name,
                               .cuda = request.cuda,
                               .gpu = request.gpu,
                               .max_context = request.max_context});
}

// What the library allocates besides is not known.
int64_t bytes(const ModelConfig& config, const EngineRequest& request) {
  return PluginWeights::bytes(config) + config.shape.kv_bytes_per_position() * request.max_context;
}

}  // namespace

extern const EngineMaker plugin_maker{.name = kPluginMaker, .make = make, .bytes = bytes};

}  // namespace mkbench
