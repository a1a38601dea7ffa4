#include "kernels/ring/megakernel.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "kernels/launch_engine.h"
#include "kernels/phase.h"
#include "kernels/prefill/prefill.h"
#include "kernels/ring/fault_word.h"
#include "kernels/ring/instances/recorded.h"
#include "kernels/ring/kv_rows.h"
#include "kernels/ring/repack.h"
#include "kernels/ring/row_kernels.h"
#include "kernels/ring/rows.h"
#include "kernels/ring/scratch.h"
#include "kernels/ring/standstill.h"
#include "kernels/ring/tuning.h"

namespace mkbench {
namespace {

using ring::LaunchParams;

const std::string kPrefix = "ring megakernel";

// Upper bound for a single spin-wait; the longest real wait takes some tens of microseconds.
constexpr double kSpinLimitUs = 2e6;
// Why the ring megakernel does not support this model; empty if it does.
std::string model_obstacle(const ModelShape& shape) {
  std::string text = ring::layout_obstacle(shape);
  if (shape.layers < 2 || shape.layers % 2 != 0 || shape.layers > ring::kMaxLayers) {
    text += std::string(text.empty() ? "" : "; ") + "num_hidden_layers found " +
            std::to_string(shape.layers) + " wanted an even number of at most " +
            std::to_string(ring::kMaxLayers);
  }
  return text.empty() ? text : kPrefix + ": " + text;
}

// Throws Error(kBadInput) if there is an obstacle.
void check_model(const ModelShape& shape) {
  const std::string obstacle = model_obstacle(shape);
  if (!obstacle.empty()) throw Error(ErrorKind::kBadInput, obstacle);
}

int compute_major(int gpu) {
  int major = 0;
  MKBENCH_CUDA(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, gpu));
  return major;
}

LaunchConfig launch_config(const ModelShape& shape, const RingOptions& options) {
  return ring::with_layout(shape, [&]<typename L>(L) {
    using Kernels = ring::RowKernels<L::kIndex>;
    return LaunchConfig{.kernel = options.kernel != nullptr ? options.kernel
                                                            : Kernels::kernel_for(options.ablation),
                        .blocks = ring::kBlocks,
                        .threads = Kernels::threads_per_block(),
                        .shared_bytes = Kernels::shared_bytes(compute_major(options.gpu))};
  });
}

// Throws Error(kUnsupportedDevice) unless the kernel runs on the GPU, which becomes the current
// device.
void check_device(const ModelShape& shape, const RingOptions& options) {
  const int gpu = options.gpu;
  use_device(kPrefix, gpu);
  const std::string obstacle = ring::room_obstacle(shape, compute_major(gpu));
  if (!obstacle.empty()) {
    throw Error(ErrorKind::kUnsupportedDevice,
                kPrefix + ": GPU " + std::to_string(gpu) + ": " + obstacle);
  }
  require_co_resident(kPrefix, launch_config(shape, options), gpu);
}

void check_options(const ModelShape& shape, const RingOptions& options, int compute_major) {
  const auto require = [](const char* name, int value, int low, int high) {
    if (value >= low && value <= high) return;
    throw Error(ErrorKind::kBadInput, kPrefix + ": " + name + " is " + std::to_string(value) +
                                          ", wanted " + std::to_string(low) + " to " +
                                          std::to_string(high));
  };
  require("split_from", options.split_from, -1, ring::kMostRedundant);
  require("copies in flight", options.pace.copies_in_flight, 0,
          ring::most_copies_in_flight(shape, compute_major));
  require("gap between copies", options.pace.gap_cycles, 0, ring::kMostGapCycles);
  require("copies of the LM head in flight", options.head_pace.copies_in_flight, 0,
          ring::most_head_copies_in_flight(shape, compute_major));
  require("gap between copies of the LM head", options.head_pace.gap_cycles, 0,
          ring::kMostGapCycles);
}

// A given row must be for these layers and this kind of card.
void check_tuning(const ModelShape& shape, const RingOptions& options, int compute_major) {
  if (options.tuning.empty()) return;
  const ring::Tuning row = ring::read_tuning_row(options.tuning);
  if (row.held == ring::is_held(shape) &&
      (row.compute_major == 0 || row.compute_major == compute_major))
    return;
  throw Error(
      ErrorKind::kBadInput,
      kPrefix + ": a row of tuning for other layers or another kind of card: " + options.tuning);
}

class RingEngine final : public LaunchEngine {
 public:
  RingEngine(const ModelWeights& weights, const RingOptions& options,
             const cudaDeviceProp& properties)
      : LaunchEngine({.can = ring_capabilities(),
                      .prefix = kPrefix,
                      .gpu = options.gpu,
                      .max_context = options.max_context,
                      .hidden_with_logits_only = true,
                      .fault = options.fault,
                      .stall_block = options.stall_block},
                     weights.config, launch_config(weights.config.shape, options),
                     ring::exchange_layout(weights.config.shape).bytes),
        options_(options),
        asked_(options),
        compute_major_(properties.major),
        tuning_(asked_.tuning.empty()
                    ? ring::tuning_for(properties.name, properties.major, weights.config.shape)
                    : ring::read_tuning_row(asked_.tuning)),
        model_(upload_model(weights, options.max_context, options.fault)),
        streamed_(ring::repack(model_, weights.config.shape)),
        kv_memory_(cache().bytes()),
        key_maxima_(static_cast<size_t>(weights.config.shape.layers) * ring::kGroups),
        prefill_scratch_(weights.config.shape),
        words_(weights.config.shape) {
    MKBENCH_CUDA(cudaMemset(key_maxima_.get(), 0, key_maxima_.bytes()));
    poison();
  }

  static int64_t device_bytes(const ModelConfig& model, const RingOptions& options) {
    const ring::KvCache cache{nullptr, model.shape.layers, options.max_context};
    return device_model_bytes(model, options.max_context) +
           ring::streamed_model_bytes(model.shape) + static_cast<int64_t>(cache.bytes()) +
           4LL * model.shape.layers * ring::kGroups +
           static_cast<int64_t>(ring::exchange_layout(model.shape).bytes) +
           prefill::PrefillScratch::bytes(model.shape) + fixed_bytes(model.shape);
  }

  void retune(const RingOptions& options) {
    check_options(config().shape, options, compute_major_);
    const LaunchConfig launch = launch_config(config().shape, options);
    require_co_resident(kPrefix, launch, options_.gpu);
    set_launch(launch);
    options_.pace = options.pace;
    options_.head_pace = options.head_pace;
    options_.split_from = options.split_from;
    options_.slow_attention = options.slow_attention;
    options_.ablation = options.ablation;
  }

  std::string settings() const override { return ring::tuning_row(tuning_); }

  // count_from is ignored: each launch begins with zeroed words and epoch 1. Instead of delays,
  // delay_seed sets the loader's pace; one of its bits sets the slow path, another one split_from.
  std::optional<std::string> stress(const Stress& stress) override {
    const auto bits = static_cast<unsigned>(stress.delay_seed);
    const bool delays = stress.delay_us > 0;
    const auto most =
        static_cast<unsigned>(ring::most_copies_in_flight(config().shape, compute_major_));
    RingOptions changed = asked_;
    if (delays) {
      changed.pace = {1 + static_cast<int>(bits % most), static_cast<int>(bits >> 8 & 0xfff)};
      changed.slow_attention = (bits >> 20 & 1) != 0;
      if ((bits >> 21 & 1) != 0) changed.split_from = static_cast<int>(bits >> 22 & 0xff);
    }
    options_ = changed;
    return "counters: each launch of ring begins with epoch 1, and none of its counters can "
           "overflow in a launch";
  }

 private:
  ring::KvCache cache() const {
    return {kv_memory_.get(), config().shape.layers, options_.max_context};
  }

  int64_t append_rows(std::span<const int32_t> ids,
                      const std::function<void(int)>& reached) override {
    const prefill::RingKv kv{kv_memory_.get(), key_maxima_.get(), ring::kGroups,
                             options_.max_context};
    return prefill::prefill_rows(prefill::prefill_model(model_, config(), context_bias()), kv,
                                 prefill_scratch_, ids, position(), reached);
  }

  void poison_scratch() override {
    words_.poison();
    prefill_scratch_.poison();
  }
  void poison_rows(int position) override { ring::poison_rows(cache(), position); }
  void zero_rows() override { MKBENCH_CUDA(cudaMemset(kv_memory_.get(), 0, kv_memory_.bytes())); }
  uint64_t checksum(int positions) const override { return ring::kv_checksum(cache(), positions); }
  std::vector<float> read_row(int layer, int position) const override {
    return ring::read_row(cache(), layer, position);
  }

  // The largest |k| of each layer and kv head. It is part of a snapshot, because the reference of
  // the exponents, and so the bits of later results, depend on it.
  std::vector<float> derived() const override {
    std::vector<float> maxima(key_maxima_.size());
    MKBENCH_CUDA(
        cudaMemcpy(maxima.data(), key_maxima_.get(), key_maxima_.bytes(), cudaMemcpyDeviceToHost));
    return maxima;
  }

  // A snapshot that another engine saved has no derived values: they are computed from the KV rows,
  // which are rounded to bf16.
  void restore_derived(const std::vector<float>& values, int position) override {
    const std::vector<float> maxima = values.empty() ? ring::key_maxima(cache(), position) : values;
    if (maxima.size() != key_maxima_.size()) {
      throw Error(ErrorKind::kBadInput, kPrefix + ": restore: " + std::to_string(maxima.size()) +
                                            " derived values, wanted " +
                                            std::to_string(key_maxima_.size()));
    }
    MKBENCH_CUDA(
        cudaMemcpy(key_maxima_.get(), maxima.data(), key_maxima_.bytes(), cudaMemcpyHostToDevice));
  }

  void* prepare(const Request& request) override {
    words_.zero();
    LaunchParams& p = params_;
    fill_common(p, request);
    p.stream = streamed_.stream.get();
    p.kv = kv_memory_.get();
    p.embed = raw_bits(model_.embed);
    p.norms = raw_bits(streamed_.norms);
    p.qk_norms = raw_bits(streamed_.qk_norms);
    p.rope = model_.rope.get();
    p.key_maxima = key_maxima_.get();
    words_.fill(p);
    p.layers = config().shape.layers;
    p.slow_attention = options_.slow_attention ? 1 : 0;
    p.spin_limit_us =
        static_cast<unsigned>(std::clamp(kSpinLimitUs * options_.spin_scale, 1.0, 4e9));
    ring::apply_tuning(tuning_, compute_major_, config().shape, p);
    if (options_.split_from >= 0) p.split_from = options_.split_from;
    if (options_.pace.copies_in_flight > 0) {
      for (ring::PaceRange& range : p.paces) range.pace = options_.pace;
    }
    if (options_.head_pace.copies_in_flight > 0) p.head_pace = options_.head_pace;
    return &p;
  }

  std::optional<Standstill> find_standstill(const KernelStatus& f, bool ended) const override {
    if (ended && f.raised != kRaisedHang) return std::nullopt;
    const ring::ExchangeLayout& layout = words_.layout();
    const std::optional<std::vector<char>> words =
        ended ? words_.read() : side().read(options_.gpu, words_.get(), layout.bytes);
    if (!words) return std::nullopt;
    ring::StoodLaunch launch;
    launch.words = *words;
    launch.shape = config().shape;
    launch.position = launch_position();
    launch.step = std::max(f.progress_position - launch_position(), 0);
    launch.ended = ended;
    std::memcpy(&launch.fault, words->data() + layout.fault, sizeof(launch.fault));
    return ring::standstill(launch);
  }

  std::optional<RecordedInstance> recorded_instance() const override {
    if (options_.ablation != RingAblation::kNone || asked_.kernel != nullptr ||
        !config().shape.same_layer_shape(kLayerShapes.shapes[ring::kHeldRow]))
      return std::nullopt;
    LaunchConfig launch = launch_config(config().shape, asked_);
    launch.kernel = ring::recorded_kernel();
    static_assert(ring::kConsumerTrack == 0 && ring::kPublisherTrack == 1 &&
                  ring::kLoaderTrack == 2 && ring::kStatisticsTrack == 3 && ring::kTracks == 4);
    return RecordedInstance{
        launch, {"consumers", "publisher", "loader", "statistics"}, ring::kReadingsPerStep};
  }

  void reset_words() override { words_.reset_within(side().get()); }

  void collect_fault(KernelStatus& status) const override {
    const ring::FaultWord word = words_.fault();
    if (word != 0) ring::unpack_fault(word, status);
  }

  Error fault_error(const KernelStatus& f) const override {
    const std::string block = kPrefix + ": block " + std::to_string(f.block);
    const std::string position = ", position " + std::to_string(f.position);
    if (f.raised == kRaisedRange) {
      return {ErrorKind::kRuntime,
              block + ", phase " + std::string(phase_name(static_cast<Phase>(f.phase))) +
                  ", layer " + std::to_string(f.layer) + position +
                  ": a contribution to the residual stream is NaN or not within +-2^20, which the "
                  "fixed-point exchange cannot carry"};
    }
    if (f.layer == ring::kOwnRing) {
      return {ErrorKind::kHang,
              block + " waited in vain for its own copies or for room in its ring" + position};
    }
    return LaunchEngine::fault_error(f);
  }

  RingOptions options_;
  const RingOptions asked_;  // the options of make_ring()
  const int compute_major_;
  const ring::Tuning tuning_;  // its texts may be parts of asked_.tuning
  const DeviceModel model_;    // row-major: source of the stream; embedding and prefill read it
  const ring::StreamedModel streamed_;
  DeviceBuffer<char> kv_memory_;
  DeviceBuffer<float> key_maxima_;  // (layers, kv_heads)
  prefill::PrefillScratch prefill_scratch_;
  ring::ExchangeWords words_;
  LaunchParams params_{};
};

}  // namespace

EngineCapabilities ring_capabilities() {
  return {.name = "ring", .device = {}, .one_launch = true, .rewind = true};
}

int64_t ring_device_bytes(const ModelConfig& config, const RingOptions& options) {
  check_model(config.shape);
  return RingEngine::device_bytes(config, options);
}

std::string ring_obstacle(const ModelConfig& config, int gpu) {
  const std::string text = model_obstacle(config.shape);
  if (!text.empty()) return text;
  int before = -1;
  const bool known = cudaGetDevice(&before) == cudaSuccess;
  std::string obstacle;
  try {
    RingOptions options;
    options.gpu = gpu;
    check_device(config.shape, options);
  } catch (const Error& error) {
    obstacle = error.what();
  }
  if (known) cudaSetDevice(before);
  return obstacle;
}

std::unique_ptr<Engine> make_ring(const ModelWeights& weights, const RingOptions& options) {
  check_model(weights.config.shape);
  check_shapes(weights, kPrefix);
  check_context(kPrefix, weights.config, options.max_context);
  check_device(weights.config.shape, options);
  cudaDeviceProp properties{};
  MKBENCH_CUDA(cudaGetDeviceProperties(&properties, options.gpu));
  check_options(weights.config.shape, options, properties.major);
  check_tuning(weights.config.shape, options, properties.major);
  check_memory(kPrefix, ring_device_bytes(weights.config, options));
  return std::make_unique<RingEngine>(weights, options, properties);
}

void retune_ring(Engine& engine, const RingOptions& options) {
  RingEngine* ring = dynamic_cast<RingEngine*>(&engine);
  if (ring == nullptr) {
    throw Error(ErrorKind::kBadInput,
                "retune_ring: " + engine.capabilities().name + " is not a ring engine");
  }
  ring->retune(options);
}

}  // namespace mkbench
