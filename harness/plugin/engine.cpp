#include "harness/plugin/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <optional>
#include <vector>

#include "harness/engines/plugin_file.h"
#include "harness/plugin/handle.h"
#include "harness/plugin/memory.h"
#include "harness/plugin/model.h"
#include "harness/plugin/slots.h"
#include "harness/plugin/timeline.h"
#include "harness/plugin/weight_storage.h"
#include "kernels/cuda_event.h"
#include "references/base/error.h"

namespace mkbench {
namespace {

// CUDA events before and after the device work of a call.
struct EventPair {
  Event start, stop;
};

class PluginEngine : public Engine {
 public:
  PluginEngine(const ModelWeights& weights, const PluginOptions& options)
      : options_(options),
        plugin_(options),
        who_(plugin_.who()),
        shape_(weights.config.shape),
        weights_(who_, weights, options.cuda),
        model_(weights, weights_.tensors()),
        vectors_(who_ + ": vectors of decode()", options.cuda, 1),
        hidden_(who_ + ": hidden vectors of decode()", options.cuda,
                sizeof(float) * static_cast<size_t>(shape_.hidden)),
        ids_(who_ + ": ids of decode()", options.cuda, 1),
        logits_(who_ + ": logits of decode()", options.cuda,
                sizeof(float) * static_cast<size_t>(shape_.vocab)),
        spans_(who_ + ": spans of decode()", options.cuda, sizeof(mkbench_span)),
        shown_(who_ + ": values of show()", /*cuda=*/false, sizeof(float)) {
    if (options_.cuda) events_.emplace();
    open();
  }

  // Closes the library's engine before the members go, because it uses weights and buffers.
  ~PluginEngine() override { plugin_.close(); }
  PluginEngine(const PluginEngine&) = delete;
  PluginEngine& operator=(const PluginEngine&) = delete;

  EngineCapabilities capabilities() const override {
    return {.name = fmt::format("{}@{}", plugin_->name,
                                std::filesystem::path(options_.path).filename().string()),
            .device = plugin_.device(),
            .max_context = max_context_,
            .context_limit = plugin_->max_context,
            .logits = plugin_.can(MKBENCH_CAN_LOGITS),
            .one_launch = plugin_.can(MKBENCH_ONE_LAUNCH),
            .forced = true,  // see replay()
            .snapshots = plugin_->save != nullptr && plugin_->restore != nullptr,
            .poison = false,
            .counted = false,
            .rewind = plugin_->rewind != nullptr && takes_late_ids(),
            .late_id = takes_late_ids(),
            .deterministic = !plugin_.can(MKBENCH_NOT_DETERMINISTIC),
            .vectors = plugin_.can(MKBENCH_CAN_VECTORS) && plugin_.can(MKBENCH_CAN_HIDDEN),
            .precision = static_cast<PrecisionClass>(plugin_->precision)};
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
    ++decodes_;
    if (forced == nullptr && can_start()) return run(n, nullptr, {.logits_out = logits_out});
    if (!can_force()) return replay(n, forced, logits_out);
    std::vector<int32_t> inputs{pending_};
    if (forced != nullptr) {
      inputs.insert(inputs.end(), forced + 1, forced + n);
      return run(n, inputs.data(), {.logits_out = logits_out});
    }
    // The first id is forced; the engine chooses all later ones.
    std::vector<int32_t> ids = run(1, inputs.data(), {.logits_out = logits_out});
    if (n > 1 && !ids.empty()) {
      float* rest = logits_out == nullptr ? nullptr : logits_out + shape_.vocab;
      const std::vector<int32_t> more = run(n - 1, nullptr, {.logits_out = rest});
      ids.insert(ids.end(), more.begin(), more.end());
    }
    return ids;
  }

  std::vector<int32_t> decode_vectors(int n, const VectorSteps& steps) override {
    if (!capabilities().vectors) return Engine::decode_vectors(n, steps);
    check_steps(n, steps.logits_out);
    check_vector_steps(who_ + ": decode_vectors", n, steps, shape_.hidden, position_);
    if (steps.in == nullptr) {
      check_pending();
      if (!can_start())
        throw Error(ErrorKind::kRuntime, who_ + ": decode_vectors: it takes no late id");
    }
    times_ = {};
    ++decodes_;
    return run(n, nullptr, steps);
  }

  void set_pending(int32_t id) override {
    check_id(id);
    pending_ = id;
  }

  void rewind(int position) override {
    if (!capabilities().rewind) Engine::rewind(position);
    check_written("rewind", position);
    plugin_.end_call("rewind", plugin_->rewind(plugin_.get(), position));
    go_to(position, -1);
  }

  Snapshot save() override {
    check_snapshots();
    return {position_, pending_, slots_.save(position_, plugin_pending_)};
  }

  void restore(const Snapshot& s) override {
    check_snapshots();
    check_written("restore", s.position);
    go_to(s.position, slots_.restore(s.position, s.kv_checksum));
    pending_ = s.pending;
  }

  std::optional<std::vector<float>> hidden(int layer) override {
    if (position_ == 0) return std::nullopt;
    return show(MKBENCH_SHOW_HIDDEN, layer, position_ - 1, shape_.hidden);
  }
  std::optional<std::vector<float>> kv_row(int layer, int position) override {
    // An outline does not tell how wide a row is, nor which layers have one.
    if (position < 0 || position >= position_ || !shape_.is_whole()) return std::nullopt;
    return show(MKBENCH_SHOW_KV_ROW, layer, position, 2 * shape_.kv_width());
  }

  std::optional<std::vector<float>> dequantised(const std::string& name, int64_t count) override {
    if (plugin_->dequantised == nullptr) return std::nullopt;
    std::vector<float> values(static_cast<size_t>(count));
    void* const room = shown_.prepare(values.size() * sizeof(float));
    return shown("dequantised", values,
                 plugin_->dequantised(plugin_.get(), name.c_str(), static_cast<float*>(room)));
  }

  std::optional<WeightStorage> storage(const std::string& name) override {
    if (plugin_->storage == nullptr) return std::nullopt;
    return storage_of(plugin_->storage(plugin_.get(), name.c_str()), "storage('" + name + "')");
  }

  bool set_timeline(bool on) override {
    if (plugin_->set_timeline == nullptr) return false;
    records_ = false;
    recorded_steps_ = 0;
    offer_spans(on);
    records_ = on;
    return true;
  }

  Timeline timeline() override {
    if (plugin_->set_timeline == nullptr) return Engine::timeline();
    if (recorded_steps_ == 0)
      throw Error(ErrorKind::kRuntime, who_ + ": no decode has recorded a timeline");
    std::vector<mkbench_span> spans(kMostSpans);
    spans_.collect(spans.data());
    return checked_timeline(who_, spans, plugin_->phase_name, {recorded_steps_, shape_.layers});
  }

  int position() const override { return position_; }
  int64_t launch_count() const override { return decodes_; }
  DecodeTimes last_times() const override { return times_; }
  Progress progress() const override {
    if (progress_ != nullptr) return {*progress_, -1, {}};
    return {replays_ ? position_.load() : -1, -1, {}};
  }
  void audit() override { weights_.check(); }

 private:
  bool can_force() const { return plugin_.can(MKBENCH_CAN_FORCED); }
  bool takes_late_ids() const { return plugin_.can(MKBENCH_CAN_LATE_ID) || can_force(); }
  // True if decode() without forced ids can begin with pending_, see run().
  bool can_start() const { return pending_ == plugin_pending_ || plugin_.can(MKBENCH_CAN_LATE_ID); }

  void open() {
    mkbench_open arguments = model_.arguments();
    arguments.device = options_.cuda ? MKBENCH_DEVICE_CUDA : MKBENCH_DEVICE_CPU;
    arguments.gpu = options_.cuda ? options_.gpu : -1;
    arguments.max_context = max_context_;
    arguments.batch = 1;
    plugin_.open(arguments);
    if (plugin_->progress != nullptr) progress_ = plugin_->progress(plugin_.get());
  }

  void restart() {
    plugin_.end_call("reset", plugin_->reset(plugin_.get()));
    consumed_.clear();
    position_ = 0;
    plugin_pending_ = -1;
    clean_ = true;
  }

  // Prefills the whole sequence from position 0; the last id of `all` becomes pending.
  void feed(const std::vector<int32_t>& all) {
    if (std::find(all.begin(), all.end(), kVectorRow) != all.end())
      throw Error(ErrorKind::kRuntime,
                  who_ + ": KV rows of vectors cannot be prefilled again as ids");
    if (!clean_) restart();
    clean_ = false;
    plugin_.end_call("prefill",
                     plugin_->prefill(plugin_.get(), all.data(), static_cast<int32_t>(all.size())));
    consumed_.assign(all.begin(), all.end() - 1);
    position_ = static_cast<int>(consumed_.size());
    pending_ = plugin_pending_ = all.back();
  }

  // Goes back to `position`, where `pending` (-1: nothing) is pending.
  void go_to(int position, int32_t pending) {
    consumed_.resize(static_cast<size_t>(position));
    position_ = position;
    pending_ = plugin_pending_ = pending;
  }

  // Decodes with an engine that takes no forced ids: an input that differs from the engine's own
  // choice is made pending. If the engine cannot do that either, the sequence so far is prefilled
  // again with the forced id at its end.
  std::vector<int32_t> replay(int n, const int32_t* forced, float* logits_out) {
    struct Replaying {
      explicit Replaying(std::atomic<bool>& flag) : on(flag) { on = true; }
      ~Replaying() { on = false; }
      std::atomic<bool>& on;
    } const replaying(replays_);
    std::vector<int32_t> ids;
    for (int t = 0; t < n; ++t) {
      if (t > 0 && forced != nullptr) pending_ = forced[t];
      if (!can_start()) {
        std::vector<int32_t> all = consumed_;
        all.push_back(pending_);
        feed(all);
      }
      float* row = logits_out == nullptr ? nullptr : logits_out + int64_t{t} * shape_.vocab;
      const std::vector<int32_t> id = run(1, nullptr, {.logits_out = row});
      if (id.empty()) break;
      ids.push_back(id.front());
    }
    return ids;
  }

  // Poisoned memory of the device for n rows; null if `wanted` is null.
  static float* room_for(GuardedBuffer& buffer, const float* wanted, int n, int width) {
    if (wanted == nullptr) return nullptr;
    return static_cast<float*>(
        buffer.prepare(sizeof(float) * static_cast<size_t>(n) * static_cast<size_t>(width)));
  }

  // A copy of the input vectors in memory of the device; null without vectors.
  const uint16_t* upload(const Bf16* vectors, int n) {
    if (vectors == nullptr) return nullptr;
    const size_t bytes = sizeof(Bf16) * static_cast<size_t>(n) * static_cast<size_t>(shape_.hidden);
    void* const copy = vectors_.prepare(bytes);
    if (options_.cuda) {
      MKBENCH_CUDA(cudaMemcpy(copy, vectors, bytes, cudaMemcpyHostToDevice));
    } else {
      std::memcpy(copy, vectors, bytes);
    }
    return static_cast<const uint16_t*>(copy);
  }

  // Gives the library unwritten spans to fill in, or with `on` false none.
  void offer_spans(bool on) {
    void* const memory = on ? spans_.prepare(kMostSpans * sizeof(mkbench_span)) : nullptr;
    const auto room = static_cast<int32_t>(on ? kMostSpans : 0);
    plugin_.end_call("set_timeline", plugin_->set_timeline(
                                         plugin_.get(), static_cast<mkbench_span*>(memory), room));
    spans_unwritten_ = on;
  }

  // What show() fills in; nullopt where the library does not show it.
  std::optional<std::vector<float>> show(int32_t what, int layer, int position, int count) {
    if (plugin_->show == nullptr || layer < 0 || layer >= shape_.layers) return std::nullopt;
    std::vector<float> values(static_cast<size_t>(count));
    const mkbench_show args{.size = sizeof args,
                            .what = what,
                            .layer = layer,
                            .position = position,
                            .out = room_for(shown_, values.data(), 1, count)};
    return shown("show", values, plugin_->show(plugin_.get(), &args));
  }

  // What a call has written into shown_, whose size is that of `values`.
  std::optional<std::vector<float>> shown(const char* function, std::vector<float>& values,
                                          int32_t status) {
    plugin_.finish_device();
    shown_.collect(values.data());
    if (status == MKBENCH_NOT_SHOWN) return std::nullopt;
    plugin_.check(function, status);
    return std::move(values);
  }

  // One call of decode() into poisoned and guarded buffers. Without inputs and vectors it begins
  // with pending_. Trailing ids that are still -1 are cut off.
  std::vector<int32_t> run(int n, const int32_t* inputs, const VectorSteps& steps) {
    const bool by_id = inputs == nullptr && steps.in == nullptr;
    mkbench_decode args{};
    args.size = sizeof args;
    args.n = n;
    args.late_id = by_id && pending_ != plugin_pending_ ? pending_ : -1;
    args.forced = inputs;
    args.vectors = upload(steps.in, n);
    args.logits = room_for(logits_, steps.logits_out, n, shape_.vocab);
    args.hidden = room_for(hidden_, steps.hidden_out, n, shape_.hidden);
    if (records_) {
      // Spans of an earlier decode would be taken for this one's.
      if (!spans_unwritten_) offer_spans(true);
      spans_unwritten_ = false;
      recorded_steps_ = 0;
    }
    if (events_) events_->start.record();
    args.ids = static_cast<int32_t*>(ids_.prepare(sizeof(int32_t) * static_cast<size_t>(n)));
    const int32_t status = plugin_->decode(plugin_.get(), &args);
    plugin_.finish_device();
    std::vector<int32_t> emitted(static_cast<size_t>(n));
    ids_.collect(emitted.data());
    if (events_) {
      events_->stop.record();
      plugin_.finish_device();
      times_.event_ms += events_->stop.ms_since(events_->start);
    }
    if (args.logits != nullptr) logits_.collect(steps.logits_out);
    if (args.hidden != nullptr) hidden_.collect(steps.hidden_out);
    plugin_.check("decode", status);
    if (records_) recorded_steps_ = n;
    for (int t = 0; t < n; ++t) {
      consumed_.push_back(steps.in != nullptr ? kVectorRow
                          : inputs != nullptr ? inputs[t]
                          : t == 0            ? pending_
                                              : emitted[static_cast<size_t>(t) - 1]);
    }
    position_ = static_cast<int>(consumed_.size());
    while (!emitted.empty() && emitted.back() == -1) emitted.pop_back();
    if (!emitted.empty()) pending_ = plugin_pending_ = emitted.back();
    return emitted;
  }

  void check_decode(int n, const int32_t* forced, const float* logits_out) const {
    check_steps(n, logits_out);
    check_pending();
    for (int t = 1; forced != nullptr && t < n; ++t) check_id(forced[t]);
  }

  void check_pending() const {
    if (pending_ < 0)
      throw Error(ErrorKind::kBadInput, who_ + ": decode: no pending id, call prefill first");
  }

  void check_steps(int n, const float* logits_out) const {
    if (n < 1)
      throw Error(ErrorKind::kBadInput,
                  fmt::format("{}: decode: {} steps, wanted 1 or more", who_, n));
    if (logits_out != nullptr && !plugin_.can(MKBENCH_CAN_LOGITS))
      throw Error(ErrorKind::kRuntime,
                  who_ + ": decode: it has no logits, and they were asked for");
    check_room(consumed_.size() + static_cast<size_t>(n));
  }

  void check_id(int32_t id) const {
    if (id >= 0 && id < shape_.vocab) return;
    throw Error(ErrorKind::kBadInput,
                fmt::format("{}: token id {} is not in [0, {})", who_, id, shape_.vocab));
  }

  void check_snapshots() const {
    if (!capabilities().snapshots) throw Error(ErrorKind::kRuntime, who_ + ": it has no snapshots");
  }

  void check_written(const char* function, int position) const {
    if (position >= 0 && position <= position_) return;
    throw Error(ErrorKind::kBadInput, fmt::format("{}: {}: position {} is not in [0, {}]", who_,
                                                  function, position, position_.load()));
  }

  void check_room(size_t positions) const {
    if (positions <= static_cast<size_t>(max_context_)) return;
    throw Error(ErrorKind::kBadInput, fmt::format("{}: context: {} positions needed, {} there",
                                                  who_, positions, max_context_));
  }

  const PluginOptions options_;
  PluginHandle plugin_;
  Slots slots_{plugin_};
  const std::string& who_;
  const int max_context_ = plugin_->max_context > 0
                               ? std::min(options_.max_context, plugin_->max_context)
                               : options_.max_context;
  const ModelShape shape_;
  PluginWeights weights_;
  const PluginModel model_;  // points into weights_
  GuardedBuffer vectors_, hidden_, ids_, logits_, spans_, shown_;
  std::optional<EventPair> events_;
  const volatile int32_t* progress_ = nullptr;

  static constexpr int32_t kVectorRow = -1;  // in consumed_: a KV row made from an input vector
  std::vector<int32_t> consumed_;            // ids whose KV rows are written
  std::atomic<int> position_ = 0;            // consumed_.size()
  std::atomic<bool> replays_ = false;        // position_ moves within the call
  int32_t pending_ = -1;                     // the next input that the harness has set
  int32_t plugin_pending_ = -1;              // the next input that the plugin assumes
  bool clean_ = true;                        // nothing was prefilled since open() or reset()
  int64_t decodes_ = 0;  // calls by the harness; with MKBENCH_ONE_LAUNCH each counts as one launch
  DecodeTimes times_;
  // Enough for seven spans of each phase in a decode of 16 steps, 28 layers with 5 phases, and 132
  // blocks: 50 MB.
  static constexpr size_t kMostSpans = size_t{1} << 21;
  bool records_ = false;          // decodes record a timeline
  bool spans_unwritten_ = false;  // no decode has begun since they were offered
  int recorded_steps_ = 0;        // steps of the decode that wrote the spans; 0: none has
};

}  // namespace

std::unique_ptr<Engine> make_plugin(const ModelWeights& weights, const PluginOptions& options) {
  return std::make_unique<PluginEngine>(weights, options);
}

}  // namespace mkbench
