#include "kernels/host_twin/host_twin.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <mutex>
#include <utility>

#include "kernels/host_twin/exchange.h"
#include "kernels/host_twin/faults.h"
#include "kernels/host_twin/phases.h"
#include "kernels/host_twin/scheduler.h"
#include "kernels/host_twin/workspace.h"
#include "references/base/error.h"
#include "references/base/parallel.h"
#include "references/model/rope.h"

namespace mkbench {
namespace host_twin {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kMaxBlocks = 1024;
constexpr int kMaxDefaultThreads = 8;
constexpr int kExchangesPerLayer = 5;

// The body of the megakernel, run by every block: a phase in each line, an exchange in each
// co_await.
BlockTask decode_kernel(Phases& phases, Block& b, Exchange& exchange) {
  const Launch& launch = *b.launch;
  const int layers = b.model->shape().layers;
  // Row t of an array with one row per step; null if the launch has no such array.
  const auto row = [](auto* array, int t, int width) {
    return array != nullptr ? array + static_cast<size_t>(t) * static_cast<size_t>(width) : array;
  };
  const int hidden = b.model->shape().hidden, vocab = b.model->shape().vocab;
  int32_t id = launch.first_id;
  for (int t = 0; t < launch.steps; ++t) {
    const int position = launch.position + t;
    const auto enter = [&](Phase phase, int layer) {
      exchange.enter(b.index, {phase, layer, position});
      if (launch.timeline != nullptr) launch.timeline->enter(b.index, phase, layer, t);
    };
    const auto arrive = [&] {
      if (launch.timeline != nullptr) launch.timeline->wait(b.index);
      return exchange.arrive(b.index);
    };
    if (t > 0 && launch.inputs) id = launch.inputs[t];
    if (b.index == 0)
      std::atomic_ref(*launch.position_word).store(position, std::memory_order_relaxed);

    enter(Phase::kEmbed, -1);
    phases.phase_embed(b, id, row(launch.vectors, t, hidden));
    for (int layer = 0; layer < layers; ++layer) {
      enter(Phase::kQkv, layer);
      phases.phase_qkv(b, layer);
      co_await arrive();
      enter(Phase::kAttention, layer);
      phases.phase_attention(b, layer, position);
      co_await arrive();
      enter(Phase::kOProj, layer);
      phases.phase_o_proj(b, layer, position);
      co_await arrive();
      enter(Phase::kGateUp, layer);
      phases.phase_gate_up(b, layer);
      co_await arrive();
      enter(Phase::kDown, layer);
      phases.phase_down(b, layer);
      co_await arrive();
    }
    if (launch.lm_head) {
      enter(Phase::kLmHead, -1);
      phases.phase_lm_head(b, row(launch.logits_out, t, vocab), row(launch.hidden_out, t, hidden));
      co_await arrive();
      if (launch.timeline != nullptr) launch.timeline->enter(b.index, Phase::kEmbed, -1, t + 1);
      id = phases.block_reduce_best(b);
      if (b.index == 0) launch.tokens_out[t] = id;
    }
    if (b.index == 0) launch.step_ends[t] = Clock::now();
  }
  if (launch.timeline != nullptr) launch.timeline->end(b.index);
}

// Which of its arrivals a stalled block does not make, counted from 1: the one after attention in
// the last layer of the launch's first step.
int stalled_arrival(int layers) {
  return kExchangesPerLayer * (layers - 1) + static_cast<int>(Phase::kAttention);
}

[[noreturn]] void bad_input(const std::string& message) {
  throw Error(ErrorKind::kBadInput, "host-twin: " + message);
}

void require_range(const char* name, int value, int low, int high) {
  if (value >= low && value <= high) return;
  bad_input(std::string(name) + " = " + std::to_string(value) + ", wanted " + std::to_string(low) +
            " to " + std::to_string(high));
}

// Checks the options before anything is allocated, and fills in the defaults.
HostTwinOptions checked(HostTwinOptions o, const ModelWeights& weights) {
  require_range("max_context", o.max_context, 1, weights.config.max_positions);
  require_range("blocks", o.blocks, 1, kMaxBlocks);
  require_range("threads", o.threads, 0, kMaxBlocks);
  require_range("stall_ms", o.stall_ms, 1, 24 * 3600 * 1000);
  require_range("stall_block", o.stall_block, -1, o.blocks - 1);
  if (o.threads == 0) o.threads = std::min(thread_count(0), kMaxDefaultThreads);
  o.threads = std::min(o.threads, o.blocks);  // a thread without a block has nothing to do
  return o;
}

// A cache for one engine. With kSharedCache all engines share one cache, as if it were a static buffer.
std::shared_ptr<KvCache> make_cache(const ModelShape& shape, const HostTwinOptions& options) {
  const auto made = [&] { return std::make_shared<KvCache>(shape, options.max_context); };
  if (options.fault != PlantedFault::kSharedCache) return made();
  static std::mutex mutex;
  static std::weak_ptr<KvCache> shared;
  const std::lock_guard guard(mutex);
  std::shared_ptr<KvCache> cache = shared.lock();
  if (!cache) shared = cache = made();
  return cache;
}

class HostTwin final : public Engine {
 public:
  HostTwin(ModelWeights weights, const HostTwinOptions& options)
      : options_(options),
        model_{.weights = std::move(weights), .ops = &vector_ops()},
        phases_(make_phases(options.fault, options.blocks)),
        rope_(inverse_frequencies(effective_rope(model_.weights.config.rope, options.fault),
                                  model_.shape().head_dim),
              options.fault),
        kv_(make_cache(model_.shape(), options)),
        shared_(model_.shape(), options.blocks),
        exchange_(options.blocks),
        scheduler_(options.threads) {
    model_.eps = static_cast<float>(model_.weights.config.rms_norm_eps);
    blocks_.reserve(static_cast<size_t>(options.blocks));
    for (int b = 0; b < options.blocks; ++b) {
      blocks_.push_back({.index = b,
                         .blocks = options.blocks,
                         .model = &model_,
                         .rope = &rope_,
                         .kv = kv_.get(),
                         .shared = &shared_,
                         .local = BlockScratch(model_.shape(), options.blocks)});
    }
  }

  EngineCapabilities capabilities() const override {
    EngineCapabilities can = host_twin_capabilities();
    can.max_context = options_.max_context;
    return can;
  }

  void reset() override {
    constexpr int kRowsKept = 8;  // kResetKeepsRows: as if a reset kept a page of 8 rows
    const bool keeps = options_.fault == PlantedFault::kResetKeepsRows;
    position_ = keeps ? std::min(position_, kRowsKept) : 0;
    pending_ = -1;
    stepped_ = false;
    if (faulted_) exchange_.restart();
    faulted_ = false;
  }

  void poison() override {
    require_sound();
    shared_.poison();
    for (Block& b : blocks_) b.local.poison();
    kv_->poison(position_);
    stepped_ = false;
  }

  void prefill(std::span<const int32_t> ids) override {
    require_sound();
    if (ids.empty()) bad_input("prefill: no ids");
    // The pending id, if there is one, comes first. The last id of all becomes pending.
    std::vector<int32_t> inputs;
    if (pending_ >= 0) inputs.push_back(pending_);
    for (const int32_t id : ids) inputs.push_back(checked_id("prefill", id));
    const int32_t last = inputs.back();
    inputs.pop_back();
    require_room("prefill", static_cast<int64_t>(inputs.size()));
    if (!inputs.empty()) {
      launch({.position = position_,
              .steps = static_cast<int>(inputs.size()),
              .first_id = inputs[0],
              .inputs = inputs.data(),
              .lm_head = false});
    }
    pending_ = last;
  }

  std::vector<int32_t> decode(int n, const int32_t* forced, float* logits_out) override {
    return run(n, forced, {.logits_out = logits_out});
  }

  std::vector<int32_t> decode_vectors(int n, const VectorSteps& steps) override {
    return run(n, nullptr, steps);
  }

  void set_pending(int32_t id) override {
    require_sound();
    pending_ = checked_id("set_pending", id);
  }

  void rewind(int position) override {
    require_sound();
    require_written("rewind", position);
    position_ = position;
    pending_ = -1;
    poison();
  }

  Snapshot save() override {
    require_sound();
    return {.position = position_, .pending = pending_, .kv_checksum = kv_->checksum(position_)};
  }

  void restore(const Snapshot& s) override {
    require_sound();
    require_written("restore", s.position);
    if (kv_->checksum(s.position) != s.kv_checksum) {
      throw Error(ErrorKind::kIntegrity, "host-twin: restore: KV rows below position " +
                                             std::to_string(s.position) +
                                             " are not those of the snapshot");
    }
    position_ = s.position;
    pending_ = s.pending;
    poison();
  }

  std::optional<std::string> stress(const Stress& stress) override {
    require_sound();
    exchange_.begin_at(stress);
    return "";
  }

  bool set_timeline(bool on) override {
    records_ = on;
    timeline_.reset();
    return true;
  }

  Timeline timeline() override {
    if (!timeline_ || faulted_)
      throw Error(ErrorKind::kRuntime, "host-twin: no decode has recorded a timeline");
    return timeline_->collect();
  }

  int position() const override { return position_; }
  const volatile int32_t* position_word() const { return &position_word_; }
  int64_t launch_count() const override { return launches_; }
  DecodeTimes last_times() const override { return times_; }

  Progress progress() const override {
    const int block = reported_block_.load(std::memory_order_relaxed);
    const Location at = exchange_.location(block);
    if (at.position < 0) return {};
    return {.position = at.position, .layer = at.layer, .phase = phase_name(at.phase)};
  }

  std::optional<Standstill> standstill() const override {
    Standstill found = exchange_.standstill(launch_position_, model_.shape().layers, launch_head_);
    if (found.wanted < 0) return std::nullopt;  // no block waits: the launch is over or goes on
    return found;
  }

  std::optional<std::vector<float>> hidden(int layer) override {
    if (!stepped_ || layer < 0 || layer >= model_.shape().layers) return std::nullopt;
    const auto from = shared_.hidden.begin() + static_cast<int64_t>(layer) * model_.shape().hidden;
    return std::vector<float>(from, from + model_.shape().hidden);
  }

  std::optional<std::vector<float>> kv_row(int layer, int position) override {
    if (layer < 0 || layer >= model_.shape().layers) return std::nullopt;
    if (position < 0 || position >= position_) return std::nullopt;
    return kv_->row(layer, position);
  }

 private:
  void require_sound() const {
    if (!faulted_) return;
    throw Error(ErrorKind::kRuntime, "host-twin: a launch was aborted; reset() first");
  }

  void require_written(const char* what, int position) const {
    if (position >= 0 && position <= position_) return;
    bad_input(std::string(what) + ": position " + std::to_string(position) + " is not in [0, " +
              std::to_string(position_) + "]");
  }

  int32_t checked_id(const char* what, int32_t id) const {
    if (id >= 0 && id < model_.shape().vocab) return id;
    if (options_.fault == PlantedFault::kIdsClamped) {
      return std::clamp(id, 0, model_.shape().vocab - 1);
    }
    bad_input(std::string(what) + ": token id " + std::to_string(id) + " outside of 0 to " +
              std::to_string(model_.shape().vocab - 1));
  }

  void require_room(const char* what, int64_t rows) const {
    if (rows <= options_.max_context - position_) return;
    bad_input(std::string(what) + ": position " + std::to_string(position_) + " + " +
              std::to_string(rows) + " steps, but max_context is " +
              std::to_string(options_.max_context));
  }

  std::vector<int32_t> run(int n, const int32_t* forced, const VectorSteps& steps) {
    const auto begin = Clock::now();
    require_sound();
    if (n < 1) bad_input("decode: n = " + std::to_string(n) + ", wanted 1 or more");
    if (pending_ < 0 && steps.in == nullptr) bad_input("decode: no pending id (prefill first)");
    require_room("decode", n);
    check_vector_steps("host-twin: decode", n, steps, model_.shape().hidden, position_);
    std::vector<int32_t> inputs;
    for (int t = 0; forced && t < n; ++t) {
      inputs.push_back(t == 0 ? pending_ : checked_id("decode: forced", forced[t]));
    }
    std::vector<int32_t> tokens(static_cast<size_t>(n), -1);
    launch({.position = position_,
            .steps = n,
            .first_id = pending_,
            .inputs = forced ? inputs.data() : nullptr,
            .vectors = steps.in,
            .logits_out = steps.logits_out,
            .hidden_out = steps.hidden_out,
            .tokens_out = tokens.data()});
    pending_ = tokens.back();
    const std::chrono::duration<double, std::milli> elapsed = Clock::now() - begin;
    times_.host_ms = elapsed.count();
    return tokens;
  }

  // Runs all blocks to the end of `work` and moves the position. Throws Error(kHang), which names
  // the block that the others wait for.
  void launch(Launch work) {
    std::vector<Clock::time_point> step_ends(static_cast<size_t>(work.steps));
    work.step_ends = step_ends.data();
    if (records_) timeline_.emplace(options_.blocks, work.steps, model_.shape().layers);
    work.timeline = timeline_ ? &*timeline_ : nullptr;
    work.position_word = &position_word_;
    rope_.extend(work.position + work.steps + 1);  // planted faults rotate by the next position
    for (Block& b : blocks_) b.launch = &work;
    reported_block_.store(0, std::memory_order_relaxed);
    exchange_.begin_launch();
    launch_position_ = work.position;
    launch_head_ = work.lm_head;
    plant_hang();
    ++launches_;
    stepped_ = false;
    faulted_ = true;  // until all blocks have finished
    const auto begin = Clock::now();
    std::vector<BlockTask> tasks;
    tasks.reserve(blocks_.size());
    for (Block& b : blocks_) tasks.push_back(decode_kernel(*phases_, b, exchange_));
    if (const auto fault = scheduler_.run(tasks, exchange_, options_.stall_ms)) {
      reported_block_.store(fault->block, std::memory_order_relaxed);
      throw Error(ErrorKind::kHang, "host-twin: no progress for " +
                                        std::to_string(options_.stall_ms) +
                                        " ms: " + to_string(*fault));
    }
    faulted_ = false;
    stepped_ = true;
    position_ += work.steps;
    keep_times(begin, step_ends);
  }

  // Plants stall_block and faults of the exchange, where the options set them, for the next launch.
  void plant_hang() {
    using Disturbance = Exchange::Disturbance;
    const int nth = stalled_arrival(model_.shape().layers), block = options_.blocks / 2;
    if (options_.stall_block >= 0 &&
        (options_.stall_launch < 0 || options_.stall_launch == launches_)) {
      exchange_.stall(options_.stall_block, nth);
    }
    if (options_.fault == PlantedFault::kNotResident) {
      exchange_.hold_back(std::max(1, options_.blocks * 3 / 4));
    }
    if (options_.fault == PlantedFault::kBlockDelayed)
      exchange_.disturb(Disturbance::kDelay, block, nth);
    if (options_.fault == PlantedFault::kArrivalLost)
      exchange_.disturb(Disturbance::kLose, block, nth);
    if (options_.fault == PlantedFault::kWordsReset)
      exchange_.disturb(Disturbance::kReset, block, nth);
    if (options_.fault == PlantedFault::kCounterOverflow) exchange_.count_in_32_bits();
  }

  void keep_times(Clock::time_point begin, const std::vector<Clock::time_point>& step_ends) {
    times_ = {};
    times_.per_token_ms.reserve(step_ends.size());
    for (const Clock::time_point end : step_ends) {
      times_.per_token_ms.push_back(std::chrono::duration<double, std::milli>(end - begin).count());
      begin = end;
    }
  }

  const HostTwinOptions options_;
  Model model_;
  const std::unique_ptr<Phases> phases_;
  RopeTable rope_;
  std::shared_ptr<KvCache> kv_;
  SharedScratch shared_;
  std::vector<Block> blocks_;
  Exchange exchange_;
  Scheduler scheduler_;

  int position_ = 0;
  int32_t position_word_ = -1;
  int32_t pending_ = -1;
  bool stepped_ = false;  // shared_.hidden has the hidden states of this sequence's last step
  bool faulted_ = false;
  int64_t launches_ = 0;
  DecodeTimes times_;
  bool records_ = false;
  std::optional<TwinTimeline> timeline_;  // the last launch's
  std::atomic<int> launch_position_{-1};  // position of the last launch's first step
  std::atomic<bool> launch_head_{false};  // the last launch runs the LM head
  std::atomic<int> reported_block_{0};    // progress() returns the location of this block
};

}  // namespace
}  // namespace host_twin

EngineCapabilities host_twin_capabilities() {
  return {
      .name = "host-twin", .device = "cpu", .one_launch = true, .rewind = true, .vectors = true};
}

const volatile int32_t* host_twin_position(const Engine& twin) {
  return dynamic_cast<const host_twin::HostTwin&>(twin).position_word();
}

std::unique_ptr<Engine> make_host_twin(ModelWeights weights, const HostTwinOptions& options) {
  const HostTwinOptions usable = host_twin::checked(options, weights);
  check_shapes(weights, "host-twin");
  if (options.fault == PlantedFault::kSwapGateUp) {
    for (LayerWeights& layer : weights.layers) std::swap(layer.gate_proj, layer.up_proj);
  }
  return std::make_unique<host_twin::HostTwin>(std::move(weights), usable);
}

}  // namespace mkbench
