#include "harness/device/ceiling_engine.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <optional>
#include <vector>

#include "harness/device/step_reader.h"
#include "kernels/device_buffer.h"
#include "kernels/host_copies.h"
#include "kernels/launch_checks.h"
#include "kernels/ring/megakernel.h"
#include "kernels/ring/tuning.h"

namespace mkbench {
namespace {

const std::string kPrefix = "ceiling";
// Most steps in one launch of the search, because the KV rows to read grow from step to step.
constexpr int kMostSearchSteps = 64;

RingOptions ring_options(const EngineRequest& request) {
  RingOptions options;
  options.gpu = request.gpu;
  options.max_context = request.max_context;
  options.spin_scale = request.spin_scale;
  return options;
}

int64_t step_bytes_at(const ModelConfig& config, const EngineRequest& request, int position) {
  return request.reads.known() ? request.reads.bytes(position)
                               : config.shape.bytes_per_step(position);
}

// Whether a step reads the model's own tensors, as `ring` does; else it reads as many bytes as
// transformers' class or the engine's declared storage tells.
bool reads_tensors(const ModelConfig& config, const EngineRequest& request) {
  return !config.is_outline() && !request.reads.known();
}

bool has_ring(const ModelConfig& config, const EngineRequest& request) {
  return reads_tensors(config, request) && ring_obstacle(config, request.gpu).empty();
}

// Bytes of the copied weights and KV rows: what the longest step reads.
int64_t copied_bytes(const ModelConfig& config, const EngineRequest& request) {
  return StepReader::padded(step_bytes_at(config, request, request.max_context));
}

int64_t device_bytes(const ModelConfig& config, const EngineRequest& request) {
  return copied_bytes(config, request) +
         (has_ring(config, request) ? ring_device_bytes(config, ring_options(request)) : 0);
}

class CeilingEngine final : public Engine {
 public:
  CeilingEngine(const ModelWeights& weights, const EngineRequest& request)
      : config_(weights.config),
        request_(request),
        reader_(request.gpu),
        memory_(static_cast<size_t>(copied_bytes(weights.config, request))) {
    cudaDeviceProp properties{};
    MKBENCH_CUDA(cudaGetDeviceProperties(&properties, request.gpu));
    device_ = "cuda:" + std::to_string(request.gpu) + " " + properties.name;
    copy_weights(weights);
    if (has_ring(weights.config, request)) make_ring_stream(weights);
    space_ = {.bulk = reader_.has_bulk_copy(),
              .most_ring_copies = ring_ ? static_cast<uint32_t>(ring::most_copies_in_flight(
                                              config_.shape, properties.major))
                                        : 0,
              .bulk_blocks = static_cast<uint32_t>(reader_.blocks()),
              .ring_blocks = ring::kBlocks,
              .step_bytes = step_bytes(request.depth),
              .l2_bytes = static_cast<uint64_t>(properties.l2CacheSize)};
    if (request_.settings.empty()) {
      search();
    } else {
      take(request_.settings);
    }
  }

  EngineCapabilities capabilities() const override {
    return {.name = kPrefix,
            .device = device_,
            .max_context = request_.max_context,
            .logits = false,
            .one_launch = true,
            .forced = false,
            .snapshots = false,
            .poison = false,
            .rewind = true};
  }
  std::string settings() const override { return settings_; }

  // The KV rows are there from the beginning, so only the place in the sequence changes.
  void reset() override { position_ = 0; }
  void poison() override {}
  void set_pending(int32_t) override {}
  void prefill(std::span<const int32_t> ids) override {
    if (ids.empty()) throw Error(ErrorKind::kBadInput, kPrefix + ": prefill: no ids");
    go_to(position_ + static_cast<int>(ids.size()) - 1);
  }
  void rewind(int position) override { go_to(position); }

  std::vector<int32_t> decode(int n, const int32_t* forced, float* logits_out) override {
    if (forced != nullptr || logits_out != nullptr)
      throw Error(ErrorKind::kBadInput, kPrefix + ": takes no forced ids and has no logits");
    if (n < 1 || position_ + n > request_.max_context) {
      throw Error(ErrorKind::kBadInput, kPrefix + ": decode: " + std::to_string(n) +
                                            " steps from position " + std::to_string(position_) +
                                            " on, the context is " +
                                            std::to_string(request_.max_context));
    }
    const auto begin = std::chrono::steady_clock::now();
    times_ = {};
    times_.event_ms = launch(pattern_, n);
    times_.host_ms =
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
    ++launches_;
    position_ += n;
    return std::vector<int32_t>(static_cast<size_t>(n), 0);
  }

  Snapshot save() override { throw Error(ErrorKind::kRuntime, kPrefix + ": has no snapshots"); }
  void restore(const Snapshot&) override {
    throw Error(ErrorKind::kRuntime, kPrefix + ": has no snapshots");
  }
  int position() const override { return position_; }
  int64_t launch_count() const override { return launches_; }
  // Copies the times of `ring` only here, so that decode()'s clock does not include the copy.
  DecodeTimes last_times() const override {
    DecodeTimes times = times_;
    if (times.host_ms > 0 && pattern_.way == ReadPattern::Way::kRing && ring_)
      times.event_ms = ring_->last_times().event_ms;
    return times;
  }
  Progress progress() const override { return {position_, -1, {}}; }

  // Searches for the quickest pattern. search_again() calls it, too.
  void search() {
    go_to(request_.depth);
    const FoundPattern found = find_pattern(space_, [this](const ReadPattern& pattern, int steps) {
      return time_steps(pattern, steps);
    });
    settings_ = pattern_text(found.pattern) + ", the best of " + std::to_string(found.tried);
    pattern_ = found.pattern;
    choose(pattern_);
    go_to(request_.depth);
  }

 private:
  uint64_t step_bytes(int position) const {
    return static_cast<uint64_t>(step_bytes_at(config_, request_, position));
  }

  // By which each of the next steps reads more than the one before it: the mean, as layers with a
  // window stop growing where it is full.
  uint64_t growth(int steps) const {
    const int further = std::max(1, steps - 1);
    return (step_bytes(position_ + further) - step_bytes(position_)) /
           static_cast<uint64_t>(further);
  }

  // Copies all tensors that a step reads, one after the other, and fills the rest, in place of KV
  // rows, with varied bits. Where a step does not read the tensors as they are, all is such bits.
  void copy_weights(const ModelWeights& weights) {
    size_t rows = 0;
    if (reads_tensors(weights.config, request_)) rows = copy_tensors(weights);
    fill_with_bits(memory_.get() + rows, static_cast<int64_t>(memory_.bytes() - rows));
    MKBENCH_CUDA(cudaDeviceSynchronize());
  }

  // Returns where the copies end, a multiple of 16.
  size_t copy_tensors(const ModelWeights& weights) {
    const bool tied = weights.config.tie_word_embeddings;
    std::vector<HostCopy> copies;
    size_t at = 0;
    for (const NamedTensor& t : tensor_table(weights.config)) {
      // A step reads only one of lm_head and embed_tokens in full.
      if (t.global == (tied ? &ModelWeights::lm_head : &ModelWeights::embed_tokens)) continue;
      const Matrix& tensor = tensor_of(weights, t);
      copies.push_back({memory_.get() + at, tensor.data, tensor.bytes()});
      at += tensor.bytes();
    }
    copy_to_device(copies);
    if (at != step_bytes(0)) {
      throw Error(ErrorKind::kRuntime, kPrefix + ": the tensors have " + std::to_string(at) +
                                           " bytes, a step reads " + std::to_string(step_bytes(0)));
    }
    return (at + 15) / 16 * 16;
  }

  // Makes the engine `ring` and prefills it, so that its steps copy real K and V.
  void make_ring_stream(const ModelWeights& weights) {
    ring_ = make_ring(weights, ring_options(request_));
    std::vector<int32_t> ids(static_cast<size_t>(request_.depth) + 1);
    uint32_t x = 1;
    for (int32_t& id : ids) {
      x = x * 1664525u + 1013904223u;
      id = static_cast<int32_t>((x >> 8) % static_cast<uint32_t>(config_.shape.vocab));
    }
    ring_->prefill(ids);
    ring_start_ = ring_->save();
  }

  // The engine `ring` has request.depth KV rows, so its steps can begin only there.
  void go_to(int position) {
    if (position < 0 || position > request_.max_context) {
      throw Error(ErrorKind::kBadInput, kPrefix + ": position " + std::to_string(position) +
                                            " is not in [0, " +
                                            std::to_string(request_.max_context) + "]");
    }
    position_ = position;
    if (ring_ && position == request_.depth) ring_->restore(ring_start_);
  }

  Engine& ring_stream() const {
    if (!ring_) throw Error(ErrorKind::kRuntime, kPrefix + ": ring cannot run or has failed");
    return *ring_;
  }

  // Uses the pattern that settings() of another ceiling engine returned.
  void take(const std::string& settings) {
    const std::optional<ReadPattern> known = read_pattern_text(settings);
    if (!known) {
      throw Error(ErrorKind::kBadInput, kPrefix + ": pattern: found '" + settings +
                                            "', wanted a pattern as a report shows it");
    }
    settings_ = settings;
    pattern_ = *known;
    choose(pattern_);
    go_to(request_.depth);
  }

  // Milliseconds of the launch; 0 for a launch of `ring`, whose time is in last_times().
  double launch(const ReadPattern& pattern, int steps) {
    if (pattern.way != ReadPattern::Way::kRing) {
      return reader_.read(pattern, memory_.get(),
                          {step_bytes(position_), growth(steps), static_cast<uint32_t>(steps)});
    }
    if (ring_stream().position() != position_) {
      throw Error(ErrorKind::kRuntime, kPrefix + ": ring is at position " +
                                           std::to_string(ring_stream().position()) + ", wanted " +
                                           std::to_string(position_));
    }
    std::vector<int32_t> ids;
    try {
      ids = ring_stream().decode(steps);
    } catch (const Error&) {
      ring_.reset();  // a fault has emptied its sequence
      throw;
    }
    // `ring` runs without its waits here and so may compute a NaN logit, which ends the launch.
    if (std::find(ids.begin(), ids.end(), -1) != ids.end())
      throw Error(ErrorKind::kRuntime, kPrefix + ": ring without waits ended before its last step");
    return 0;
  }

  void choose(const ReadPattern& pattern) {
    if (pattern.way != ReadPattern::Way::kRing) return;
    if (pattern.plan.gap_ps > 0 && ring_ghz_ <= 0) {
      ReadPattern at_once = pattern;
      at_once.plan.gap_ps = 0;
      time_steps(at_once, 1);
    }
    RingOptions options;
    options.pace = {static_cast<int>(pattern.plan.stages),
                    static_cast<int>(std::lround(1e-3 * pattern.plan.gap_ps * ring_ghz_))};
    options.ablation = RingAblation::kNoWaits;
    retune_ring(ring_stream(), options);
  }

  // Milliseconds of `steps` steps, in launches that all begin at request.depth.
  double time_steps(const ReadPattern& pattern, int steps) {
    choose(pattern);
    const int most = std::clamp(request_.max_context - request_.depth, 1, kMostSearchSteps);
    double sum = 0;
    for (int done = 0; done < steps;) {
      const int now = std::min(most, steps - done);
      go_to(request_.depth);
      sum += launch(pattern, now);
      if (pattern.way == ReadPattern::Way::kRing) {
        const DecodeTimes times = ring_stream().last_times();
        sum += times.event_ms;
        ring_ghz_ = times.sm_ghz;
      }
      done += now;
    }
    return sum;
  }

  const ModelConfig config_;
  const EngineRequest request_;
  StepReader reader_;
  DeviceBuffer<char> memory_;
  std::string device_;
  std::unique_ptr<Engine> ring_;  // null if `ring` cannot run here or has failed
  Snapshot ring_start_;
  PatternSpace space_;
  double ring_ghz_ = 0;  // SM clock of the last launch of `ring`, 0 before; turns gaps into cycles
  ReadPattern pattern_;
  std::string settings_;
  int position_ = 0;
  int64_t launches_ = 0;
  DecodeTimes times_;
};

}  // namespace

std::unique_ptr<Engine> make_ceiling(const ModelWeights& weights, const EngineRequest& request) {
  if (!weights.config.is_outline()) check_shapes(weights, kPrefix);
  check_context(kPrefix, weights.config, request.max_context);
  if (request.depth < 0 || request.depth >= request.max_context) {
    throw Error(ErrorKind::kBadInput, kPrefix + ": depth " + std::to_string(request.depth) +
                                          " is not in [0, " + std::to_string(request.max_context) +
                                          ")");
  }
  use_device(kPrefix, request.gpu);
  check_memory(kPrefix, device_bytes(weights.config, request));
  return std::make_unique<CeilingEngine>(weights, request);
}

void search_again(Engine& ceiling) { dynamic_cast<CeilingEngine&>(ceiling).search(); }

extern const EngineMaker ceiling_maker{
    .name = "ceiling", .make = make_ceiling, .bytes = device_bytes};

}  // namespace mkbench
